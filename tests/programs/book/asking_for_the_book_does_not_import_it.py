import sys

from d2l_gpu.torch import require_book

require_book()
assert "torchvision" in sys.modules and "d2l" not in sys.modules
