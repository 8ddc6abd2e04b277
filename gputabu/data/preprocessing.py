"""Preprocessing of tables: how they are read, which columns are clustered, how they are scaled. Saved with a model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from gputabu.core.validation import check_choice, check_matrix
from gputabu.data import missing
from gputabu.data.delimited import Style
from gputabu.data.tables import Selection, Table, numbered

#: How columns can be scaled, and scikit-learn's class for it.
SCALES = {"zscore": "StandardScaler", "minmax": "MinMaxScaler", "robust": "RobustScaler"}
DTYPES = ("float32", "float64")
PLAIN = Style()
#: Fields that are lists in JSON.
TUPLES = ("columns", "center", "spread", "fill")


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Which columns were taken, and how they were scaled: (x − center) / spread.

    Attributes
    ----------
    columns : tuple of str
        Names; numbers from 1 on where the table had no names.
    named : bool
        Whether the table had names.
    id : str or None
        The column that names the rows.
    dtype : {"float32", "float64"} or None
        What the values are converted to; None leaves them as they are.
    scale : {"zscore", "minmax", "robust"} or None
    center, spread : tuple of float
        Per column; empty without a scale.
    missing : {"error", "drop", "mean", "median"}
        What becomes of missing values.
    fill : tuple of float
        Per column, what fills them in; empty if nothing does.
    decimal, thousands, encoding
        The format of texts; see `Style`.
    """

    columns: tuple[str, ...]
    named: bool
    id: str | None = None
    dtype: str | None = None
    scale: str | None = None
    center: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()
    missing: str = "error"
    fill: tuple[float, ...] = ()
    decimal: str = "."
    thousands: str = ""
    encoding: str | None = None

    @classmethod
    def of(
        cls, table: Table, scale: str | None = None, dtype: str | None = None, way: str = "error", style: Style = PLAIN
    ) -> Self:
        """The preprocessing that scales a table, and fills in what it lacks, by its own values."""
        unscaled = cls(
            table.names, table.named, table.id, None if dtype is None else check_choice("dtype", dtype, DTYPES),
            missing=way, fill=missing.fill_of(table, check_choice("missing", way, missing.WAYS)),
            decimal=style.decimal, thousands=style.thousands, encoding=style.encoding,
        )  # fmt: skip
        if scale is None:
            return unscaled
        from sklearn import preprocessing

        scaler = getattr(preprocessing, SCALES[check_choice("scale", scale, SCALES)])().fit(unscaled.points(table))
        if scale == "minmax":
            center, spread = scaler.data_min_, 1 / scaler.scale_
        else:
            center, spread = (scaler.mean_ if scale == "zscore" else scaler.center_), scaler.scale_
        return replace(unscaled, scale=scale, center=tuple(map(float, center)), spread=tuple(map(float, spread)))

    def attach(self, model: Any) -> None:
        """Store the preprocessing in a fitted model, as JSON text, so that `model.save` saves it."""
        model.recipe_ = json.dumps(asdict(self))

    @classmethod
    def attached(cls, model: Any) -> Self:
        """The preprocessing stored in a model. A model fitted in Python has none: it takes all columns unscaled."""
        text = getattr(model, "recipe_", None)
        if text is None:
            names = getattr(model, "feature_names_in_", None)
            return cls(numbered(model.n_features_in_) if names is None else tuple(names), names is not None)
        try:
            fields = json.loads(text)
            preprocessing = cls(**fields | {name: tuple(fields[name]) for name in TUPLES if name in fields})
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the model's recipe_ cannot be read: {error}.") from None
        lengths = {len(preprocessing.columns)}
        lengths |= {len(preprocessing.spread)} if preprocessing.scale else set()
        lengths |= {len(preprocessing.fill)} if preprocessing.missing in missing.FILLED else set()
        if lengths != {model.n_features_in_}:
            raise ValueError(f"the model's recipe_ is not for its {model.n_features_in_} columns.")
        return preprocessing

    def selection(self, columns: str | None = None, id: str | None = None) -> Selection:
        """The same columns of another table, by name, unless other columns are asked for."""
        chosen = self.columns if columns is None else columns
        return Selection(chosen, id) if id is not None else Selection(chosen, self.id, id_needed=False)

    def style(self, delimiter: str | None = None, header: bool | None = None) -> Style:
        """The format of other texts that are like the first."""
        return Style(delimiter, header, self.decimal, self.thousands, self.encoding)

    def points(self, table: Table) -> np.ndarray:
        """(N, d) points to cluster."""
        if len(table.names) != len(self.columns):
            raise ValueError(f"{table.source}: {len(table.names)} columns, where the model has {len(self.columns)}.")
        X = check_matrix(missing.filled(table.values, self.fill), table.source)
        X = X if self.dtype is None else X.astype(self.dtype, copy=False)
        if self.scale is None:
            return X
        center, spread = (np.array(values, X.dtype) for values in (self.center, self.spread))
        return (X - center) / spread

    def original(self, points: np.ndarray) -> np.ndarray:
        """Points in the units of the table."""
        return points if self.scale is None else points * np.array(self.spread) + np.array(self.center)

    def widths(self, spread: np.ndarray) -> np.ndarray:
        """Differences of points in the units of the table."""
        return spread if self.scale is None else spread * np.array(self.spread)
