//! Every kernel against RFC 1071 byte by byte: bytes, sum, and the bytes around the destination.
//!
//! Exhaustive are: every source alignment × every destination alignment (of 64) for lengths to 640,
//! where every branch of a kernel has been taken; every length to 4096 × every source alignment, and
//! × every destination alignment; every length to 4096 × every split point. Left out: speed.

use plumb_copy::{ChecksumKernel, Sum16, copy_and_sum, sum};

const LENGTH_MAX: usize = 4096;
const ALIGNMENTS: usize = 64;
/// What lies around the destination, and in it before the copy; the source has no such byte.
const GUARD: u8 = 0xa5;
const GUARDS: usize = 64;
const SEED: u64 = 0x1071;

fn kernels() -> impl Iterator<Item = ChecksumKernel> {
    ChecksumKernel::ALL.iter().copied().filter(|kernel| kernel.available())
}

/// Bytes that look random (xorshift64*), none of them the guard.
fn noise(length: usize) -> Vec<u8> {
    let mut state = SEED;
    let next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()[0]
    };
    std::iter::repeat_with(next).filter(|byte| *byte != GUARD).take(length).collect()
}

/// Sums of bytes from the beginning, those at even and at odd places apart, so that RFC 1071's
/// byte-wise sum of any stretch is two subtractions.
struct ReferenceSums {
    even: Vec<u64>,
    odd: Vec<u64>,
}

impl ReferenceSums {
    fn new(bytes: &[u8]) -> Self {
        let (mut even, mut odd) = (vec![0], vec![0]);
        for (at, byte) in bytes.iter().enumerate() {
            let is_odd = at % 2 == 1;
            even.push(even[at] + if is_odd { 0 } else { u64::from(*byte) });
            odd.push(odd[at] + if is_odd { u64::from(*byte) } else { 0 });
        }
        Self { even, odd }
    }

    /// RFC 1071 §4.1: the first byte of the stretch is the upper half of a word.
    fn sum(&self, from: usize, length: usize) -> u16 {
        let even = self.even[from + length] - self.even[from];
        let odd = self.odd[from + length] - self.odd[from];
        let (upper, lower) = if from.is_multiple_of(2) { (even, odd) } else { (odd, even) };
        let mut total = (upper << 8) + lower;
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        u16::try_from(total).expect("folded until it fits")
    }
}

/// Source, its reference, and a guarded destination, at known alignments.
struct GuardedBuffers {
    memory: Vec<u8>,
    page: usize,
    reference: ReferenceSums,
    target: Vec<u8>,
    target_page: usize,
}

impl GuardedBuffers {
    fn new(length: usize) -> Self {
        let size = length + 2 * ALIGNMENTS + 2 * GUARDS;
        let memory = noise(size);
        let target = vec![GUARD; size];
        Self {
            page: memory.as_ptr().align_offset(ALIGNMENTS),
            target_page: target.as_ptr().align_offset(ALIGNMENTS) + GUARDS,
            reference: ReferenceSums::new(&memory),
            memory,
            target,
        }
    }

    /// One copy and one sum by `kernel`, compared, and the destination made as it was.
    fn check(&mut self, kernel: ChecksumKernel, length: usize, from: usize, to: usize) {
        let here =
            || format!("{} of {length} bytes, {from} to {to}, seed {SEED:#x}", kernel.name());
        let start = self.page + from;
        let src = &self.memory[start..start + length];
        let expected = self.reference.sum(start, length);
        let to = self.target_page + to;
        let dst = &mut self.target[to..to + length];
        let ready = kernel.if_available().expect("it is available");
        let got = ready.copy_and_sum(src, dst).folded();
        assert_eq!(got, expected, "the sum with the copy: {}", here());
        assert!(dst == src, "the copy: {}", here());
        assert_eq!(ready.sum(src).folded(), expected, "the sum: {}", here());
        dst.fill(GUARD);
        ready.copy(src, dst);
        assert!(dst == src, "the copy without the sum: {}", here());
        dst.fill(GUARD);
        let around = &self.target[to - GUARDS..to + length + GUARDS];
        assert!(around.iter().all(|byte| *byte == GUARD), "a byte outside: {}", here());
    }
}

#[test]
fn every_pair_of_alignments_copies_and_sums_alike_up_to_640_bytes() {
    let mut bench = GuardedBuffers::new(640);
    for kernel in kernels() {
        for length in 0..=640 {
            for from in 0..ALIGNMENTS {
                for to in 0..ALIGNMENTS {
                    bench.check(kernel, length, from, to);
                }
            }
        }
    }
}

#[test]
fn every_length_copies_and_sums_alike_at_every_alignment_of_either_side() {
    let mut bench = GuardedBuffers::new(LENGTH_MAX);
    for kernel in kernels() {
        for length in 0..=LENGTH_MAX {
            for from in 0..ALIGNMENTS {
                // Another pairing at each length; within one, each side takes every value.
                bench.check(kernel, length, from, (from * 5 + length * 11) % ALIGNMENTS);
            }
        }
    }
}

#[test]
fn every_length_split_anywhere_sums_to_the_whole() {
    let bench = GuardedBuffers::new(LENGTH_MAX);
    for length in 0..=LENGTH_MAX {
        let bytes = &bench.memory[bench.page..bench.page + length];
        let expected = bench.reference.sum(bench.page, length);
        for cut in 0..=length {
            let (a, b) = bytes.split_at(cut);
            let whole = sum(a) + sum(b).at(cut);
            assert_eq!(whole.folded(), expected, "{length} bytes cut at {cut}");
        }
    }
}

#[test]
fn every_kernel_copies_a_piece_behind_a_piece_at_every_split_point() {
    let bench = GuardedBuffers::new(LENGTH_MAX);
    for kernel in kernels() {
        let ready = kernel.if_available().unwrap();
        for length in (0..=256).chain([1459, 1460, LENGTH_MAX]) {
            let src = &bench.memory[bench.page..bench.page + length];
            let expected = bench.reference.sum(bench.page, length);
            let mut dst = vec![GUARD; length];
            for cut in 0..=length {
                let ((a, b), (into_a, into_b)) = (src.split_at(cut), dst.split_at_mut(cut));
                let whole = ready.copy_and_sum(a, into_a) + ready.copy_and_sum(b, into_b).at(cut);
                assert_eq!(whole.folded(), expected, "{} {length} cut {cut}", kernel.name());
                assert!(dst == src, "{} {length} cut {cut}", kernel.name());
                dst.fill(GUARD);
            }
        }
    }
}

#[test]
fn the_chosen_kernel_and_its_short_path_agree_with_the_reference() {
    let bench = GuardedBuffers::new(LENGTH_MAX);
    assert!(ChecksumKernel::best().available());
    for length in 0..=LENGTH_MAX {
        for from in 0..2 {
            let start = bench.page + from;
            let src = &bench.memory[start..start + length];
            let expected = bench.reference.sum(start, length);
            let mut dst = vec![GUARD; length];
            assert_eq!(copy_and_sum(src, &mut dst).folded(), expected, "{length} bytes");
            assert!(dst == src, "{length} bytes");
            assert_eq!(sum(src).folded(), expected, "{length} bytes");
            assert_eq!(Sum16::of(src), sum(src), "{length} bytes");
        }
    }
}

#[test]
fn no_total_overflows_however_large_the_words_and_long_the_piece() {
    // About the length of a piece, 128 KiB, and several of them; words at the edges of what a
    // signed and an unsigned lane hold.
    for word in [[0xff, 0xff], [0xff, 0x7f], [0x00, 0x80], [0x00, 0x00], [0xff, 0x00]] {
        for length in [(128 << 10) - 1, 128 << 10, (128 << 10) + 65, (1 << 20) + 3] {
            let src: Vec<u8> = word.iter().copied().cycle().take(length).collect();
            let expected = ReferenceSums::new(&src).sum(0, length);
            for kernel in kernels() {
                for to in 0..2 {
                    let mut dst = vec![GUARD; length + to];
                    let ready = kernel.if_available().unwrap();
                    let got = ready.copy_and_sum(&src, &mut dst[to..]).folded();
                    assert_eq!(got, expected, "{} {word:?} × {length}", kernel.name());
                    assert_eq!(ready.sum(&src).folded(), expected, "{}", kernel.name());
                    assert!(dst[to..] == src, "{}", kernel.name());
                }
            }
        }
    }
}

#[test]
fn a_copy_in_lanes_is_the_same_copy_at_every_alignment() {
    // From the first length that is copied so: lanes of equal length, some bytes left over, lanes that would lie
    // at one place of their pages, and several turns of them.
    let lengths = [64 << 10, (64 << 10) + 77, 96 << 10, (130 << 10) + 1, (1 << 20) + 3];
    for length in lengths {
        let mut bench = GuardedBuffers::new(length);
        let step = if length < 96 << 10 { 1 } else { 13 };
        for kernel in kernels() {
            for to in (0..ALIGNMENTS).step_by(step) {
                bench.check(kernel, length, (to * 5 + length) % ALIGNMENTS, to);
            }
        }
    }
}

#[test]
fn a_copy_past_the_cache_is_the_same_copy() {
    let length = (16 << 20) + 77;
    let src = noise(length);
    let expected = ReferenceSums::new(&src).sum(0, length);
    for kernel in kernels() {
        for to in [0, 1, 34] {
            let mut dst = vec![GUARD; length + to + 1];
            let ready = kernel.if_available().unwrap();
            let got = ready.copy_and_sum(&src, &mut dst[to..to + length]).folded();
            assert_eq!(got, expected, "{} to {to}", kernel.name());
            assert!(dst[to..to + length] == src, "{} to {to}", kernel.name());
            assert!(dst[..to].iter().chain(&dst[to + length..]).all(|byte| *byte == GUARD));
        }
    }
}

#[test]
#[should_panic(expected = "a copy has the length of its source")]
fn a_destination_of_another_length_panics() {
    copy_and_sum(&[0; 100], &mut [0; 99]);
}

#[test]
fn only_a_kernel_that_the_processor_has_is_ready() {
    for kernel in ChecksumKernel::ALL {
        assert_eq!(kernel.if_available().is_some(), kernel.available(), "{}", kernel.name());
    }
}
