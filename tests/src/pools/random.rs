//! Random numbers that are determined by a seed.

/// Steele, Lea and Flood's `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator.
    pub fn split(&mut self) -> Self {
        Self(self.number())
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True with the probability 1/`times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.number().is_multiple_of(times)
    }

    /// One of these, each with the same probability.
    pub fn pick<T: Copy, const N: usize>(&mut self, of: [T; N]) -> Option<T> {
        let index = self.number() % u64::try_from(N).ok()?;
        of.get(usize::try_from(index).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of the authors' own code for this seed.
    #[test]
    fn numbers_are_those_of_the_authors() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.number());
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
