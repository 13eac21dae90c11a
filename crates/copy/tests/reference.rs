//! Every kernel against the byte-wise sum of RFC 1071.

use plumb_copy::{Kernel, Sum, copy_and_sum, sum};

/// RFC 1071 §4.1, byte by byte.
fn reference(bytes: &[u8]) -> u16 {
    let mut total = 0u64;
    for (at, byte) in bytes.iter().enumerate() {
        total += u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    u16::try_from(total).expect("folded")
}

#[test]
fn smoke() {
    let bytes: Vec<u8> =
        (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for len in 0..5000 {
        assert_eq!(sum(&bytes[..len]).folded(), reference(&bytes[..len]), "{len}");
        for kernel in Kernel::ALL {
            let mut dst = vec![0; len];
            assert_eq!(
                kernel.copy_and_sum(&bytes[..len], &mut dst).folded(),
                reference(&bytes[..len]),
                "{len}"
            );
            assert_eq!(dst, &bytes[..len]);
        }
        let mut dst = vec![0; len];
        assert_eq!(copy_and_sum(&bytes[..len], &mut dst), Sum::of(&bytes[..len]));
        assert_eq!(dst, &bytes[..len]);
    }
}
