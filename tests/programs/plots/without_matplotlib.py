import sys

sys.modules["matplotlib"] = None
from d2l_gpu import torch as d2l

board = d2l.ProgressBoard()
board.draw(1, 2, "loss")
print(board.data)
try:
    board.fig
except ImportError as error:
    print(error)
