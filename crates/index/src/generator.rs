//! The inputs: a generator that never changes, and what is made of it.

/// Marsaglia's xorshift64* (2003; Vigna 2016).
#[derive(Clone, Debug)]
pub(crate) struct InputGenerator(u64);

impl InputGenerator {
    /// Any seed but 0.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, by multiplication (Lemire 2019, without rejection).
    pub(crate) const fn below(&mut self, end: u32) -> u32 {
        (((self.next() >> 32) * end as u64) >> 32) as u32
    }
}

/// Bytes of text: words of a vocabulary whose ranks follow Zipf's law about, in lines.
pub(crate) fn text(seed: u64, len: usize) -> Vec<u8> {
    const WORDS: u32 = 2_048;
    let mut generator = InputGenerator::new(seed);
    let word = |generator: &mut InputGenerator| -> Vec<u8> {
        let letters = 2 + generator.below(8);
        (0..letters).map(|_| b"etaoinshrdlucmfw"[generator.below(16) as usize]).collect()
    };
    let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(&mut generator)).collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        // A product of uniform numbers prefers low ranks.
        let rank = u64::from(generator.below(WORDS)) * u64::from(generator.below(WORDS));
        let rank = usize::try_from(rank / u64::from(WORDS)).unwrap_or(0);
        text.extend_from_slice(&words[rank]);
        text.push(if generator.below(12) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(len);
    text
}

/// The checksum of a sequence of numbers: FNV-1a over their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FnvHash(u64);

impl FnvHash {
    pub(crate) const fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) const fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.byte(*byte);
        }
    }

    pub(crate) fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    pub(crate) const fn finish(self) -> u64 {
        self.0
    }
}
