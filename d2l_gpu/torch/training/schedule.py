"""How the learning rate changes while a network trains."""

import torch


def linear_schedule_with_warmup(
    optimizer: torch.optim.Optimizer, num_warmup_steps: int, num_training_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Let the learning rate rise linearly to its full value, then fall linearly to 0.

    Call ``step`` on what is returned after each step of the optimizer.

    Args:
        optimizer: its present learning rate is the full value.
        num_warmup_steps: steps until the full value is reached; 0: it is there at once.
        num_training_steps: steps in all, at least 1.
    Raises:
        ValueError: the steps make no sense.
    Source: the warm-up: Goyal et al., Accurate, Large Minibatch SGD, 2017
    (arXiv:1706.02677), section 2.2.
    """
    if not 0 <= num_warmup_steps < num_training_steps:
        raise ValueError(
            f"The warm-up takes {num_warmup_steps} of {num_training_steps} steps: give "
            "at least 0, and fewer than there are."
        )

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        rest = num_training_steps - num_warmup_steps
        return max(0, num_training_steps - step) / rest

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
