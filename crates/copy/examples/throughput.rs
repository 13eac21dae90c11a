//! Bytes a nanosecond of copy, of sum, of one after the other, and of both in one pass.
//!
//! `cargo run --release -p plumb-copy --example throughput [KERNEL…]`. The contestants
//! take turns within a round, and the median round is printed. SRC and DST in the environment are
//! offsets into a cache line. Left out: intervals; `plumb study stack` gives them.
#![expect(clippy::disallowed_methods, reason = "an example that times reads the clock itself")]
#![expect(clippy::format_collect, reason = "a line a row is not worth a fold")]
#![expect(clippy::print_stdout, reason = "it prints its table")]

use std::hint::black_box;
use std::time::Instant;

use plumb_copy::{ChecksumKernel, copy_and_sum, sum};

const SIZES: &[usize] = &[
    20,
    60,
    64,
    128,
    256,
    512,
    1024,
    1460,
    1536,
    2048,
    4096,
    9000,
    16384,
    24576,
    32768,
    65536,
    131_072,
    262_144,
    524_288,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    64 << 20,
];

/// Rounds a size, and bytes a turn in one.
const ROUNDS: usize = 31;
const TURN: usize = 1 << 19;

type BenchmarkCase<'a> = (&'a str, Box<dyn Fn(&[u8], &mut [u8]) + 'a>);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let kernels: Vec<ChecksumKernel> = ChecksumKernel::ALL
        .iter()
        .copied()
        .filter(|k| k.available() && (wanted.is_empty() || wanted.iter().any(|w| w == k.name())))
        .collect();
    let mut contestants: Vec<BenchmarkCase<'_>> = vec![
        ("memcpy", Box::new(|src, dst| dst.copy_from_slice(src))),
        (
            "sum",
            Box::new(|src, _| {
                black_box(sum(src));
            }),
        ),
        (
            "copy,sum",
            Box::new(|src, dst| {
                dst.copy_from_slice(src);
                black_box(sum(black_box(dst)));
            }),
        ),
        (
            "sum,copy",
            Box::new(|src, dst| {
                black_box(sum(src));
                dst.copy_from_slice(src);
            }),
        ),
        (
            "fused",
            Box::new(|src, dst| {
                black_box(copy_and_sum(src, dst));
            }),
        ),
    ];
    for kernel in &kernels {
        let Some(ready) = kernel.if_available() else { continue };
        contestants.push((
            kernel.name(),
            Box::new(move |src, dst| {
                black_box(ready.copy_and_sum(src, dst));
            }),
        ));
    }
    let heading: String = contestants.iter().map(|(name, _)| format!("{name:>12}")).collect();
    println!("{:>9}{heading}{:>10}{:>10}", "bytes", "/memcpy", "/two");
    let src_offset = std::env::var("SRC").map_or(0, |s| s.parse().unwrap_or(0));
    let dst_offset = std::env::var("DST").map_or(0, |s| s.parse().unwrap_or(0));
    let max = SIZES.iter().max().copied().unwrap_or_default() + 8192;
    let src_memory: Vec<u8> = (0..=255).cycle().take(max).collect();
    let mut dst_memory = vec![1u8; max];
    let src_page = src_memory.as_ptr().align_offset(4096);
    let dst_page = dst_memory.as_ptr().align_offset(4096);
    for &size in SIZES {
        let src = &src_memory[src_page + src_offset..][..size];
        let dst = &mut dst_memory[dst_page + dst_offset + 2048..][..size];
        let mut speeds = vec![Vec::new(); contestants.len()];
        for _ in 0..ROUNDS {
            for ((_, run), speeds) in contestants.iter().zip(&mut speeds) {
                speeds.push(speed(size, || run(black_box(src), black_box(dst))));
            }
        }
        let medians: Vec<f64> = speeds.into_iter().map(median).collect();
        let row: String = medians.iter().map(|speed| format!("{speed:>12.1}")).collect();
        let [memcpy, _, copy_sum, sum_copy, fused, ..] = medians[..] else { unreachable!() };
        let two = copy_sum.max(sum_copy);
        println!("{size:>9}{row}{:>10.2}{:>10.2}", fused / memcpy, fused / two);
    }
}

/// Bytes a nanosecond, of as many turns as move `TURN` bytes, after one that is not timed.
fn speed(size: usize, mut run: impl FnMut()) -> f64 {
    let turns = (TURN / size.max(64)).max(1);
    run();
    let start = Instant::now();
    for _ in 0..turns {
        run();
    }
    (size * turns) as f64 / start.elapsed().as_nanos() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
