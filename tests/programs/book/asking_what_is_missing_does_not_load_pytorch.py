import sys

from tools import companion

assert companion.missing("01_devices") is None and "torch" not in sys.modules
