"""How the learning rate changes during training."""

import torch


def linear_schedule_with_warmup(
    optimizer: torch.optim.Optimizer, num_warmup_steps: int, num_training_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a schedule that raises the learning rate linearly, then lowers it to 0.

    Call its ``step`` after each step of the optimizer.

    Args:
        optimizer: its current learning rate is the full value.
        num_warmup_steps: steps until the full value is reached; 0: no warm-up.
        num_training_steps: total number of steps, at least 1.
    Raises:
        ValueError: num_warmup_steps is negative, or not less than num_training_steps.
    Source: the warm-up: Goyal et al., Accurate, Large Minibatch SGD, 2017
        (arXiv:1706.02677), section 2.2.
    """
    if not 0 <= num_warmup_steps < num_training_steps:
        raise ValueError(
            "num_warmup_steps must be at least 0 and less than "
            f"num_training_steps={num_training_steps}, but got {num_warmup_steps}."
        )

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        rest = num_training_steps - num_warmup_steps
        return max(0, num_training_steps - step) / rest

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
