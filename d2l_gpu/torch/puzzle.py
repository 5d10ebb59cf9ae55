"""The reader's best plans for the thousand-GPU puzzle, as a table."""

from d2l_gpu.vgpu import Table


def puzzle_table() -> Table:
    """Return your best plan for each level of lesson 17, beside the others.

    Speeds are simulated tokens per second, all GPUs together. Those of published plans
    are as measured, and come after them. Your plans are in ``puzzles.json``, in the
    folder that ``D2L_GPU_DATA`` names, and only there; delete the file to start again.
    """
    # Only this needs the simulator of plans, which takes a tenth of a second to import.
    from d2l_gpu.exercises import best_plans

    return best_plans.puzzle_table()
