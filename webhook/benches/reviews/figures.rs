//! Medians and quantiles.

/// The median, or NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value at a quantile from 0 to 1, or NaN without values.
pub(crate) fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * at).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
