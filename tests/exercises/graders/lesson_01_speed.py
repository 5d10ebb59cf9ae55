"""Answers to 01.1 and 01.2, which are arithmetic, without a framework."""

import math

from tests.exercises.graders.answers import Answers


def add_answers(answers: Answers) -> None:
    """Register the answers to 01.1 and 01.2."""
    add_share_of_peak(answers)
    add_overtakes(answers)


def add_share_of_peak(answers: Answers) -> None:
    """Register the answers to 01.1, the share of a GPU's peak."""
    right, wrong = answers.right, answers.wrong

    @right("01.1")
    def with_a_speed(m, k, n, seconds, peak):
        steps = m * n * k
        speed = steps / seconds + steps / seconds
        return speed / peak

    @wrong("01.1", "a multiplication and an addition")
    def forgets_additions(m, k, n, seconds, peak):
        return m * n * k / seconds / peak

    @wrong("01.1", "share in percent")
    def in_per_cent(m, k, n, seconds, peak):
        return 200 * m * n * k / seconds / peak

    @wrong("01.1", "the other way round")
    def upside_down(m, k, n, seconds, peak):
        return peak * seconds / (2 * m * n * k)

    @wrong("01.1", "without the peak")
    def only_the_speed(m, k, n, seconds, peak):
        return 2 * m * n * k / seconds

    @wrong("01.1", "More time means less speed")
    def multiplies_by_the_time(m, k, n, seconds, peak):
        return 2 * m * n * k * seconds / peak

    @wrong("01.1", "you count m³ steps")
    def cubes_the_first(m, k, n, seconds, peak):
        return 2 * m**3 / seconds / peak

    @wrong("01.1", "you count n³ steps")
    def cubes_the_last(m, k, n, seconds, peak):
        return 2 * n**3 / seconds / peak

    @wrong("01.1", "you shouldn't hide it")
    def cuts_off(m, k, n, seconds, peak):
        return min(1.0, 2 * m * n * k / seconds / peak)

    @wrong("01.1", "you return 0.001953. How many operations")
    def counts_results_only(m, k, n, seconds, peak):
        return 2 * m * n / seconds / peak


def add_overtakes(answers: Answers) -> None:
    """Register the answers to 01.2, when a GPU finishes first."""
    right, wrong = answers.right, answers.wrong

    @right("01.2")
    def with_a_loop(cpu, gpu):
        tasks = 1
        while math.ceil(tasks / cpu[0]) * cpu[1] <= math.ceil(tasks / gpu[0]) * gpu[1]:
            tasks += 1
        return tasks

    @wrong("01.2", "and so does the GPU. That's a tie")
    def takes_a_tie(cpu, gpu):
        tasks = 1
        while math.ceil(tasks / cpu[0]) * cpu[1] < math.ceil(tasks / gpu[0]) * gpu[1]:
            tasks += 1
        return tasks

    @wrong("01.2", "With 21 tasks, the CPU finishes after 2 s")
    def forgets_the_cores(cpu, gpu):
        return int(gpu[1] // cpu[1]) + 1

    @wrong(
        "01.2", "With 11 tasks, the CPU finishes after 3 s and the GPU after 2.5 s, but"
    )
    def divides_exactly(cpu, gpu):
        return int(gpu[1] / cpu[1] * cpu[0]) + 1

    @wrong("01.2", "With 1 task, the CPU finishes after 1 s and the GPU after 4 s")
    def takes_parts_of_a_round(cpu, gpu):
        tasks = 1
        while tasks / cpu[0] * cpu[1] <= tasks / gpu[0] * gpu[1]:
            tasks += 1
        return tasks

    @wrong("01.2", "With 65 tasks")
    def fills_the_gpu(cpu, gpu):
        return gpu[0] + 1

    @wrong("01.2", "There has to be at least one task")
    def starts_at_nothing(cpu, gpu):
        return 0

    @wrong("01.2", "although it does all of them in its first round")
    def depends_on_the_size_of_the_gpu(cpu, gpu):
        return with_a_loop(cpu, gpu) - gpu[0] // 10**6

    @wrong("01.2", "With a GPU that takes 0.5 s, you return 5")
    def waits_for_a_full_cpu(cpu, gpu):
        return max(1, int(gpu[1] // cpu[1])) * cpu[0] + 1
