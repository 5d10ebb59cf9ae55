from d2l_gpu import torch as d2l

d2l.use_virtual_gpus(2)
for n in 2, 3:
    try:
        d2l.Trainer(1, num_gpus=n)
    except (NotImplementedError, ValueError) as error:
        print(type(error).__name__, error)
