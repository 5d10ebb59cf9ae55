from d2l_gpu import torch as d2l

print([row[:2] for row in d2l.devices().rows])
d2l.use_virtual_gpus(2, memory="1GiB")
for row in d2l.devices().rows[1:]:
    print(row)
