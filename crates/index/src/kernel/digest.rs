//! SHA-256 (FIPS 180-4) and CRC-32 (ISO-HDLC), by their plain definitions.

use crate::kernel::{FnvHash, text};

const LEN: usize = 1 << 20;

pub(super) fn input() -> Vec<u8> {
    text(0xD16E, LEN)
}

pub(super) fn run(bytes: &[u8]) -> u64 {
    let mut hash = FnvHash::new();
    for word in sha256(bytes) {
        hash.number(u64::from(word));
    }
    hash.number(u64::from(crc32(bytes)));
    hash.finish()
}

/// The first 32 bits of the fractional parts of the roots of the first primes: square roots of 8, cube roots of 64.
fn root_fraction(prime: u64, is_cube: bool) -> u32 {
    // floor(root(prime) * 2^32), bit by bit, in 128-bit integers.
    let mut root = 0_u128;
    for bit in (0..36).rev() {
        let trial = root | (1 << bit);
        let (power, shift) =
            if is_cube { (trial * trial * trial, 96) } else { (trial * trial, 64) };
        if power <= u128::from(prime) << shift {
            root = trial;
        }
    }
    (root & 0xFFFF_FFFF) as u32
}

fn constants() -> ([u32; 8], [u32; 64]) {
    let is_prime = |n: &u64| (2..*n).all(|d| !n.is_multiple_of(d));
    let primes: Vec<u64> = (2..312).filter(is_prime).collect();
    (
        std::array::from_fn(|i| root_fraction(primes[i], false)),
        std::array::from_fn(|i| root_fraction(primes[i], true)),
    )
}

fn sha256(bytes: &[u8]) -> [u32; 8] {
    let (mut state, round) = constants();
    let blocks = bytes.chunks_exact(64);
    let rest = blocks.remainder();
    for block in blocks {
        compress(&mut state, &round, block);
    }
    let mut tail = rest.to_vec();
    tail.push(0x80);
    while tail.len() % 64 != 56 {
        tail.push(0);
    }
    tail.extend_from_slice(&(8 * bytes.len() as u64).to_be_bytes());
    for block in tail.chunks_exact(64) {
        compress(&mut state, &round, block);
    }
    state
}

#[expect(clippy::many_single_char_names, reason = "the names of FIPS 180-4")]
fn compress(state: &mut [u32; 8], round: &[u32; 64], block: &[u8]) {
    let mut w = [0_u32; 64];
    for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
        *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    for t in 16..64 {
        let s0 = w[t - 15].rotate_right(7) ^ w[t - 15].rotate_right(18) ^ (w[t - 15] >> 3);
        let s1 = w[t - 2].rotate_right(17) ^ w[t - 2].rotate_right(19) ^ (w[t - 2] >> 10);
        w[t] = w[t - 16].wrapping_add(s0).wrapping_add(w[t - 7]).wrapping_add(s1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (k, w) in round.iter().zip(w) {
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let t1 = h.wrapping_add(s1).wrapping_add(choice).wrapping_add(*k).wrapping_add(w);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(t1));
        (d, c, b, a) = (c, b, a, t1.wrapping_add(s0.wrapping_add(majority)));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    let table: [u32; 256] = std::array::from_fn(|byte| (0..8).fold(byte as u32, step));
    let update =
        |crc: u32, byte: &u8| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xFF) as usize];
    !bytes.iter().fold(!0, update)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_test_vectors_are_reproduced() {
        // FIPS 180-4, example "abc"; the check value of CRC-32/ISO-HDLC.
        assert_eq!(sha256(b"abc")[..2], [0xBA78_16BF, 0x8F01_CFEA]);
        assert_eq!(sha256(b"")[..2], [0xE3B0_C442, 0x98FC_1C14]);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }
}
