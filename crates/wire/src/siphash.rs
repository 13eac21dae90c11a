//! SipHash-1-3 over whole words: the keyed hash behind every table that a peer's packets look up.
//!
//! Without the key nobody can choose addresses and ports that collide (Aumasson & Bernstein,
//! "SipHash: a fast short-input PRF", 2012); with one and three rounds it is what Linux and Rust use
//! for tables. Left out: byte streams of any length; what is hashed here is a few words long.

use std::net::IpAddr;

use plumb_base::seed::Seed;
use rand::Rng;

/// A key of 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SipKey {
    k0: u64,
    k1: u64,
}

impl SipKey {
    /// The key that a seed gives to `label`.
    pub fn new(seed: Seed, label: &str) -> Self {
        let mut stream = seed.stream(label);
        Self { k0: stream.next_u64(), k1: stream.next_u64() }
    }

    /// The hash of `N` words, as SipHash-1-3 of their `8 × N` little-endian bytes.
    #[inline]
    pub fn hash<const N: usize>(self, words: [u64; N]) -> u64 {
        let mut state = SipState {
            v0: self.k0 ^ 0x736f_6d65_7073_6575,
            v1: self.k1 ^ 0x646f_7261_6e64_6f6d,
            v2: self.k0 ^ 0x6c79_6765_6e65_7261,
            v3: self.k1 ^ 0x7465_6462_7974_6573,
        };
        for word in words {
            state.absorb(word);
        }
        // The last block holds the length modulo 256 in its top byte, and here nothing else.
        state.absorb(((8 * N) as u64) << 56);
        state.v2 ^= 0xff;
        state.round();
        state.round();
        state.round();
        state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    }
}

/// Sixteen bytes as two words.
#[inline]
pub fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let (words, _) = bytes.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

/// An address of either family as two words; an IPv4 one is the low half of the second.
#[inline]
pub fn address_words(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, u64::from(address.to_bits())],
        IpAddr::V6(address) => halves(address.octets()),
    }
}

struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    /// The standard library's hasher is SipHash-1-3 with a key of zeros.
    fn reference(words: &[u64]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for word in words {
            hasher.write(&word.to_le_bytes());
        }
        hasher.finish()
    }

    #[test]
    fn it_is_the_hash_that_the_standard_library_computes() {
        let zero = SipKey { k0: 0, k1: 0 };
        let mut stream = Seed(1).stream("words");
        for _ in 0..1_000 {
            let words: [u64; 5] = std::array::from_fn(|_| stream.next_u64());
            assert_eq!(zero.hash([]), reference(&[]));
            assert_eq!(zero.hash([words[0]]), reference(&words[..1]));
            assert_eq!(zero.hash([words[0], words[1]]), reference(&words[..2]));
            assert_eq!(zero.hash(words), reference(&words));
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        let (one, two) = (SipKey::new(Seed(1), "a"), SipKey::new(Seed(1), "b"));
        assert_ne!(one, two);
        assert_ne!(one.hash([7]), two.hash([7]));
        assert_eq!(one.hash([7]), SipKey::new(Seed(1), "a").hash([7]));
    }
}
