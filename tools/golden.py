#!/usr/bin/env python3
"""Prints the golden values of plumb's estimators: the same questions, answered by SciPy.

    pip install scipy diptest && python3 tools/golden.py > crates/base/tests/golden.txt

The tests read the table; they need neither Python nor SciPy. Made once with SciPy 1.17, NumPy 2.4
and diptest 0.12; run it again only when an estimator is added. One line a value or list of values:
a name, then numbers. Left out: whatever has an exact answer by hand, which the unit tests hold.
"""

import numpy as np
from scipy import stats

try:
    import diptest
except ImportError:  # the lines that need it are then missing, and the test says so
    diptest = None

rng = np.random.default_rng(20_261_121)


def put(name, *values):
    flat = np.concatenate([np.atleast_1d(np.asarray(v, dtype=float)) for v in values])
    print(name, *(repr(float(v)) for v in flat))


def autocorrelation_time(series):
    """Geyer's initial monotone sequence, by numpy's own correlation."""
    centred = series - series.mean()
    n = len(series)
    gamma = np.correlate(centred, centred, mode="full")[n - 1 :] / n
    pairs = gamma[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.argmax(pairs <= 0) if (pairs <= 0).any() else len(pairs)
    return 2 * np.minimum.accumulate(pairs[:stop]).sum() / gamma[0] - 1


ps = [0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975, 0.99, 1.0]
x = np.round(100 * np.exp(0.3 * rng.standard_normal(41)), 6)
y = np.round(104 * np.exp(0.3 * rng.standard_normal(37)), 6)
put("sample.x", x)
put("sample.y", y)
put("quantile.p", ps)
put("quantile.x", np.quantile(x, ps))
for p in (0.25, 0.5, 0.9):
    interval = stats.quantile_test(x, q=100, p=p).confidence_interval(0.95)
    put(f"order.{p}", interval.low, interval.high)

put("normal.z", [-8, -3.1, -1, -0.01, 0, 0.5, 2.2, 6])
put("normal.cdf", stats.norm.cdf([-8, -3.1, -1, -0.01, 0, 0.5, 2.2, 6]))
inside = [1e-9, 0.001, 0.025, 0.4, 0.5, 0.9, 0.975, 0.9999]
put("normal.p", inside)
put("normal.quantile", stats.norm.ppf(inside))
for df in (1, 2, 4, 9, 19.5, 120):
    put(f"student.quantile.{df}", stats.t.ppf([0.001, 0.025, 0.1, 0.5, 0.95, 0.975, 0.9995], df))
    put(f"student.cdf.{df}", stats.t.cdf([-30, -2.5, -0.3, 0, 1, 4, 50], df))
put("binomial.10.0.3", stats.binom.cdf(range(11), 10, 0.3))
put("binomial.4000.0.99", stats.binom.cdf([3900, 3950, 3960, 3980, 3999], 4000, 0.99))

small_a, small_b = x[:8], y[:11]
exact = stats.mannwhitneyu(small_a, small_b, method="exact")
put("mannwhitney.exact", exact.statistic, exact.pvalue)
normal = stats.mannwhitneyu(x, y, method="asymptotic")
put("mannwhitney.normal", normal.statistic, normal.pvalue)
tied_a, tied_b = np.round(x / 10), np.round(y / 10)
tied = stats.mannwhitneyu(tied_a, tied_b, method="asymptotic")
put("mannwhitney.tied.a", tied_a)
put("mannwhitney.tied.b", tied_b)
put("mannwhitney.tied", tied.statistic, tied.pvalue)

put("means", x.mean(), stats.gmean(x))

for name, statistic in (("mean", np.mean), ("median", np.median)):
    made = stats.bootstrap(
        (x,), statistic, n_resamples=99_999, method="percentile", rng=np.random.default_rng(1)
    )
    put(f"bootstrap.{name}.percentile", *made.confidence_interval)

noise = rng.standard_normal(400)
series = np.empty(400)
series[0] = noise[0]
for i in range(1, 400):
    series[i] = 0.8 * series[i - 1] + 0.6 * noise[i]
series = np.round(series, 6)
put("series", series)
put("series.time", autocorrelation_time(series))
put("series.time.independent", autocorrelation_time(x))

sizes = np.array([4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 524288], dtype=float)
costs = np.round((900 + 0.11 * sizes) * np.exp(0.05 * rng.standard_normal(10)), 6)
put("line.x", sizes)
put("line.y", costs)
sen = stats.theilslopes(costs, sizes, alpha=0.95)
put("line.theil_sen", sen.slope, sen.low_slope, sen.high_slope)
put("line.theil_sen.intercept", np.median(costs - sen.slope * sizes))

launches_a = np.round(100 * np.exp(0.02 * rng.standard_normal(7)), 6)
launches_b = np.round(103 * np.exp(0.02 * rng.standard_normal(7)), 6)
put("launches.a", launches_a)
put("launches.b", launches_b)
logs_a, logs_b = np.log(launches_a), np.log(launches_b)
between = np.subtract.outer(logs_b, logs_a)
pairs = np.add.outer(logs_b - logs_a, logs_b - logs_a) / 2
sides = ("greater", "less")
put("shift.between", np.median(between))
put("shift.between.p", *[stats.mannwhitneyu(logs_b, logs_a, alternative=s, method="exact").pvalue for s in sides])
put("shift.pairs", np.median(pairs[np.triu_indices(7)]))
put("shift.pairs.p", *[stats.wilcoxon(logs_b, logs_a, alternative=s, method="exact").pvalue for s in sides])

if diptest is not None:
    two = np.sort(np.concatenate([x, 130 + y]))
    put("dip.one", diptest.dipstat(np.sort(x)))
    put("dip.two", diptest.dipstat(two))
    put("dip.tied", diptest.dipstat(np.sort(tied_a)))
    put("dip.series", diptest.dipstat(np.sort(series)))
