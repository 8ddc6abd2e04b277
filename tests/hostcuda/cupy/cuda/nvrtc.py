"""cupy.cuda.nvrtc, as far as it is used."""

__all__ = ["getVersion"]


def getVersion():
    return (12, 9)
