//! Numbers of bytes as text.

/// A number of bytes with three digits and a binary unit, such as `5.2 MiB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn size_text(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1000.0 {
            let digits = usize::from(size < 10.0 && unit != "B");
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::size_text;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KiB"),
            (20_480, "20 KiB"),
            (5_500_000, "5.2 MiB"),
            (2_147_483_648, "2.0 GiB"),
            (u64::MAX, "16777216.0 TiB"),
        ] {
            assert_eq!(size_text(bytes), shown);
        }
    }
}
