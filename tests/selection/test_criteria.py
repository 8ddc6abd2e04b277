"""Criteria by hand, against scikit-learn, and at the edges where formulas divide by zero."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import blobs
from scipy.stats import multivariate_normal
from sklearn import metrics

from gputabu import lloyd, select_k
from gputabu.selection import criteria
from gputabu.selection.criteria import Fit, Silhouette


def fit_of(X, labels, weights=None) -> Fit:
    """The numbers of a clustering, written out plainly."""
    w = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    ks = np.unique(labels)
    centers = np.stack([np.average(X[labels == k], axis=0, weights=w[labels == k]) for k in ks])
    lengths = np.sqrt(((X - centers[labels]) ** 2).sum(axis=1))
    mean = np.average(X, axis=0, weights=w)
    return Fit(
        k=len(ks),
        d=X.shape[1],
        weight=float(w.sum()),
        inertia=float((w * lengths**2).sum()),
        scatter=float((w * ((X - mean) ** 2).sum(axis=1)).sum()),
        centers=centers,
        weights=np.array([w[labels == k].sum() for k in ks]),
        spreads=np.array([(w * lengths)[labels == k].sum() for k in ks]),
    )


@pytest.fixture
def fitted():
    X = blobs(300, 3, 4, seed=3)
    return X, lloyd.run(X, 5, seed=1).labels


def test_the_likelihood_is_that_of_the_densities(fitted):
    """Σ ln( N(x; c, σ² I) / K ), term by term."""
    X, labels = fitted
    fit = fit_of(X, labels)
    variance = fit.inertia / (300 * 3)
    terms = [multivariate_normal(c, variance).logpdf(X[labels == k]).sum() for k, c in enumerate(fit.centers)]
    assert criteria.log_likelihood(fit) == pytest.approx(sum(terms) - 300 * math.log(5), rel=1e-12)
    assert criteria.bic(fit) == pytest.approx(-2 * criteria.log_likelihood(fit) + 16 * math.log(300))
    assert criteria.aic(fit) == pytest.approx(-2 * criteria.log_likelihood(fit) + 32)


def test_no_other_variance_is_more_likely(fitted):
    fit = fit_of(*fitted)
    likelihood = criteria.log_likelihood(fit)
    for factor in (0.9, 1.1):
        s = factor * fit.inertia / 900
        assert -300 * math.log(5) - 450 * math.log(2 * math.pi * s) - fit.inertia / (2 * s) < likelihood


def test_as_in_scikit_learn(fitted):
    X, labels = fitted
    fit = fit_of(X, labels)
    assert criteria.calinski_harabasz(fit) == pytest.approx(metrics.calinski_harabasz_score(X, labels))
    assert criteria.davies_bouldin(fit) == pytest.approx(metrics.davies_bouldin_score(X, labels))
    ours = Silhouette(X, np.ones(len(X))).mean(labels)
    assert ours == pytest.approx(metrics.silhouette_score(X, labels), rel=1e-12)


def test_silhouettes_in_pieces(fitted, monkeypatch):
    X, labels = fitted
    whole = Silhouette(X, np.ones(len(X))).mean(labels)
    monkeypatch.setattr(criteria, "SLICE", 1000)
    assert Silhouette(X, np.ones(len(X))).mean(labels) == whole


def test_silhouettes_by_hand():
    X = np.array([[0.0], [1.0], [10.0]])
    # (9.5 - 1) / 9.5 would be of means; here b = 10 and 9, a = 1, and a cluster of one has 0.
    assert Silhouette(X, np.ones(3)).mean(np.array([0, 0, 1])) == pytest.approx((9 / 10 + 8 / 9 + 0) / 3)
    assert math.isnan(Silhouette(X, np.ones(3)).mean(np.zeros(3, int)))
    assert Silhouette(np.zeros((4, 1)), np.ones(4)).mean(np.array([0, 0, 1, 1])) == 0.0


def test_weights_are_repetitions(fitted):
    X, labels = fitted
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    heavy, repeated = fit_of(X, labels, weights), fit_of(np.repeat(X, weights, axis=0), np.repeat(labels, weights))
    for name in ("bic", "aic", "calinski_harabasz", "davies_bouldin"):
        assert getattr(criteria, name)(heavy) == pytest.approx(getattr(criteria, name)(repeated))
    ours = Silhouette(X, weights.astype(float)).mean(labels)
    theirs = metrics.silhouette_score(np.repeat(X, weights, axis=0), np.repeat(labels, weights))
    assert ours == pytest.approx(theirs)


def test_the_rule_of_one_error():
    gaps, errors = np.array([0.1, 0.5, 0.55, 0.3]), np.array([0.1, 0.1, 0.1, 0.1])
    assert criteria.within_one_error(gaps, errors) == 1  # 0.5 >= 0.55 - 0.1
    assert criteria.within_one_error(gaps, errors / 10) == 2
    assert criteria.within_one_error(np.array([1.0, 2.0, 3.0]), np.zeros(3)) == 2  # it only rises
    assert criteria.within_one_error(np.array([1.0]), np.zeros(1)) == 0


def test_gap_by_hand():
    gaps, errors = criteria.gap(np.array([1.0, math.e]), [[math.e, 1.0], [math.e**3, 1.0]])
    np.testing.assert_allclose(gaps, [2.0, -1.0])
    np.testing.assert_allclose(errors, [math.sqrt(1.5), 0.0])


def test_the_table_is_made_of_these():
    X = blobs(400, 4, 3, seed=5)
    found = select_k(X, [1, 3, 6], ["silhouette", "bic"])
    for i, k in enumerate([1, 3, 6]):
        labels = lloyd.run(X, k, init=found.centers[k]).labels
        fit = fit_of(X, labels)
        expected = {
            "inertia": fit.inertia,
            "bic": criteria.bic(fit),
            "aic": criteria.aic(fit),
            "calinski_harabasz": metrics.calinski_harabasz_score(X, labels) if k > 1 else math.nan,
            "davies_bouldin": metrics.davies_bouldin_score(X, labels) if k > 1 else math.nan,
            "silhouette": metrics.silhouette_score(X, labels) if k > 1 else math.nan,
        }
        for name, value in expected.items():
            assert found.table[name][i] == pytest.approx(value, rel=1e-9, nan_ok=True), name
