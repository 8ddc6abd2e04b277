"""cupy.cuda.compiler, as far as it is used."""

__all__ = ["CompileException"]


class CompileException(Exception):
    def __init__(self, msg, source, name, options, backend="nvrtc"):
        super().__init__(msg)
        self.source, self.name, self.options, self.backend = source, name, options, backend

    def get_message(self):
        return str(self)
