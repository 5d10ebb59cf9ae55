"""The devices there are, real and virtual, and whether they compute."""

from d2l_gpu.common.processor import size_text
from d2l_gpu.common.settings import VIRTUAL, virtual_limit

from .facts import Facts
from .findings import ISSUES, NOTE, OK, PROBLEM, Finding, assign, unset
from .probes import try_virtual_gpus
from .pytorch import not_looked_at, torch_is_usable

REPORT = "Fix what the other lines report first; if this remains, report it"

LITTLE_MEMORY = 2**30  # of a GPU; what lessons need, and the driver itself


def check_devices(facts: Facts) -> list[Finding]:
    """Which devices are there, how much memory has each, and do they compute?"""
    torch = facts.torch
    if not torch_is_usable(facts):
        return [not_looked_at("devices")]
    trouble = torch.helper_trouble or torch.trouble
    if trouble and not torch.rows:
        return [
            Finding(
                "devices",
                PROBLEM,
                f"The devices cannot be listed: {trouble}.",
                f"{REPORT}: {ISSUES}",
            )
        ]
    listed = "; ".join(f"{name}: {model}, {gib}" for name, _, model, gib in torch.rows)
    findings = [Finding("devices", OK, f"{listed}.")]
    for device, reason in torch.device_troubles.items():
        findings.append(
            Finding(
                "devices",
                PROBLEM,
                f"{device} is present, but cannot compute ({reason}).",
                f"Let lessons use virtual GPUs: {assign(VIRTUAL, 2)}",
            )
        )
    for device, left in torch.free.items():
        if left < LITTLE_MEMORY:
            findings.append(
                Finding(
                    "devices",
                    NOTE,
                    f"{device} has only {size_text(left)} of memory left; other "
                    "programs use the rest.",
                    "See which ones, and close those that you do not need: nvidia-smi",
                )
            )
    if trouble:
        findings.append(
            Finding(
                "devices",
                PROBLEM,
                f"Computing on {torch.kind or 'the devices'} failed: {trouble}.",
                "Restart the machine, or let lessons use virtual GPUs: "
                f"{assign(VIRTUAL, 2)}",
            )
        )
    return findings


def check_setting(facts: Facts) -> list[Finding]:
    """Does D2L_GPU_VIRTUAL say something that makes sense?"""
    try:
        limit = virtual_limit()
    except ValueError as error:
        what, _, _ = str(error).partition(": ")
        return [
            Finding(
                "setting",
                PROBLEM,
                f"{what}.",
                "Set it to 0 to forbid virtual GPUs, to a positive number to force "
                f"them, or remove it: {unset(VIRTUAL)}",
            )
        ]
    if limit is None:
        what = f"{VIRTUAL} is not set: real GPUs are used if there are enough."
        return [Finding("setting", OK, what)]
    if limit == 1 or (limit == 0 and facts.torch.count < 2):
        return [
            Finding(
                "setting",
                NOTE,
                f"{VIRTUAL}={limit} does not allow two GPUs here: most lessons stop "
                "at their first lines.",
                f"Remove it: {unset(VIRTUAL)}",
            )
        ]
    what = f"forces virtual GPUs, at most {limit}" if limit else "forbids virtual GPUs"
    return [Finding("setting", OK, f"{VIRTUAL}={limit} {what}.")]


def check_virtual_gpus(facts: Facts) -> list[Finding]:
    """Do two virtual GPUs compute what the CPU does?"""
    if not torch_is_usable(facts):
        return [not_looked_at("virtual-gpus")]
    answer = facts.ask(try_virtual_gpus)
    if answer.said.get("equal"):
        memory = size_text(answer.said["memory"])
        return [
            Finding(
                "virtual-gpus",
                OK,
                f"Two virtual GPUs, {memory} of simulated memory each, give the same "
                "results as the CPU.",
            )
        ]
    why = answer.trouble or "their results differ from the CPU's"
    return [
        Finding(
            "virtual-gpus",
            PROBLEM,
            f"Virtual GPUs do not work: {why.rstrip('.')}.",
            f"{REPORT}: {ISSUES}",
        )
    ]
