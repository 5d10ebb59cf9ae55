import torch
from torch import nn

from d2l_gpu import torch as d2l
from tests.helpers.toy_training import Line, Regression

d2l.use_virtual_gpus(2)


class Adam(Regression):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def network():
    # Without dropout: each device has its own random numbers.
    return nn.Sequential(
        nn.LazyLinear(8),
        nn.LazyBatchNorm1d(),
        nn.ReLU(),
        nn.LazyLinear(1),
    )


for kind in Regression, Adam:
    states = []
    for num_gpus in 0, 1:
        torch.manual_seed(0)
        model = kind(network())
        model.board.display = False
        trainer = d2l.Trainer(3, num_gpus=num_gpus, gradient_clip_val=1)
        trainer.fit(model, Line())
        states.append(model.state_dict())
        places = {str(value.device) for value in states[-1].values()}
        print(places, trainer.gpus, trainer.device)
    print(
        all(
            torch.equal(value, states[1][name].cpu())
            for name, value in states[0].items()
        )
    )
