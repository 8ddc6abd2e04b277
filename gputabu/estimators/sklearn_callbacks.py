"""Support for scikit-learn's own callbacks (`set_callbacks`, from 1.9 on).

A fit is a task, and every iteration of the search a subtask of it. The protocol is experimental, so only this module
uses it. Hooks get no `fitted_estimator`: between iterations there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gputabu.algorithms.monitor import Callback, Progress

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing: there are no callbacks to support."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        return method


class FitTasks:
    """The tasks of one fit, for the callbacks set on the estimator."""

    def __init__(self, estimator: Any, max_iter: int | None, data: dict[str, Any]) -> None:
        self.estimator, self.data = estimator, data
        self.fit = estimator._init_callback_context(max_subtasks=max_iter)
        self.fit.call_on_fit_task_begin(estimator=estimator, **data)

    def end(self) -> None:
        self.fit.call_on_fit_task_end(estimator=self.estimator, **self.data)

    def joined(self, callback: Callback | None) -> Callback:
        """One callback for the estimator's own `callback`, if any, and the hooks: any of them may end the fit."""

        def both(progress: Progress) -> Any:
            answer = None if callback is None else callback(progress)
            return self.iteration(progress) or answer

        return both

    def iteration(self, progress: Progress) -> bool:
        if progress.phase != "search":
            return False
        task = self.fit.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=self.estimator, **self.data)
        return bool(task.call_on_fit_task_end(estimator=self.estimator, **self.data))


def fit_tasks(estimator: Any, max_iter: int | None, data: dict[str, Any]) -> FitTasks | None:
    """The tasks of a fit, if callbacks are set."""
    return FitTasks(estimator, max_iter, data) if getattr(estimator, "_skl_callbacks", None) else None
