//! What the vector kernels have in common: where a pass begins and ends.
//!
//! A kernel's file brings `WIDTH`, `Totals` of what is copied, `Sums` of what is only read, `load`,
//! `store` and `stream`; [`passes`] writes its passes around them. An *edge* is fewer bytes than a vector has: the *head* before `dst` is aligned,
//! and the *tail*, of which a kernel also sees what comes before. It is a macro because a generic function cannot take over the target
//! features that its parameters need. Left out: pieces longer than `PIECE_MAX`.

/// Vectors a turn: as many totals, so that no addition waits for the one before.
pub(super) const UNROLL: usize = 4;

/// Writes a kernel's passes, with the target features that it needs.
macro_rules! passes {
    ($features:literal) => {
        pub(super) static PASSES: $crate::kernel::Passes = $crate::kernel::Passes {
            sum,
            copy_and_sum: copy_and_sum::<false, true>,
            stream_and_sum: copy_and_sum::<true, true>,
            copy_and_sum_lanes: copy_lanes::<true>,
            copy: copy_and_sum::<false, false>,
            copy_lanes: copy_lanes::<false>,
        };

        /// Bytes a turn of the loop.
        const BLOCK: usize = WIDTH * TURN;

        #[target_feature(enable = $features)]
        fn sum(bytes: &[u8]) -> u64 {
            if bytes.len() < WIDTH {
                return $crate::kernel::short::sum(bytes);
            }
            let mut totals = Sums::zero();
            let (blocks, rest) = bytes.as_chunks::<BLOCK>();
            for block in blocks {
                let (vectors, _) = block.as_chunks::<WIDTH>();
                for (at, vector) in vectors.iter().enumerate() {
                    totals.add(at % UNROLL, load(vector));
                }
            }
            let (vectors, tail) = rest.as_chunks::<WIDTH>();
            for at in 0..TURN - 1 {
                if let Some(vector) = vectors.get(at) {
                    totals.add(at % UNROLL, load(vector));
                }
            }
            totals.add_tail(bytes, tail.len());
            totals.finish(blocks.len() * TURN + vectors.len(), 1)
        }

        #[target_feature(enable = $features)]
        fn copy_and_sum<const STREAM: bool, const SUM: bool>(src: &[u8], dst: &mut [u8]) -> u64 {
            if src.len() < WIDTH {
                return $crate::kernel::short::copy_and_sum(src, dst);
            }
            let dst = &mut dst[..src.len()];
            let head = if src.len() < 2 * BLOCK { 0 } else { dst.as_ptr().align_offset(WIDTH) };
            if head % 2 == 0 {
                copy_body::<STREAM, SUM, false>(src, dst, head)
            } else {
                copy_odd::<STREAM, SUM>(src, dst, head)
            }
        }

        /// Apart, as what an odd head needs would be saved and restored around every copy.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn copy_odd<const STREAM: bool, const SUM: bool>(
            src: &[u8],
            dst: &mut [u8],
            head: usize,
        ) -> u64 {
            copy_body::<STREAM, SUM, true>(src, dst, head)
        }

        /// Copies up to where `dst` is aligned, `head` bytes on; then whole vectors, and the tail.
        #[inline]
        #[target_feature(enable = $features)]
        fn copy_body<const STREAM: bool, const SUM: bool, const ODD: bool>(
            src: &[u8],
            dst: &mut [u8],
            head: usize,
        ) -> u64 {
            let mut totals = Totals::zero();
            if head > 0 {
                // The rest of the words begin at the head's parity.
                totals.copy_head(src, dst, head, ODD);
            }
            let (src, dst) = (&src[head..], &mut dst[head..]);
            let dst = &mut dst[..src.len()];
            let (blocks, rest) = src.as_chunks::<BLOCK>();
            let (into_blocks, into_rest) = dst.as_chunks_mut::<BLOCK>();
            for (block, into) in blocks.iter().zip(into_blocks) {
                let (vectors, _) = block.as_chunks::<WIDTH>();
                let (into, _) = into.as_chunks_mut::<WIDTH>();
                let turns = vectors.as_chunks::<UNROLL>().0.iter().zip(into.as_chunks_mut().0);
                for (vectors, into) in turns {
                    let into: &mut [[u8; WIDTH]; UNROLL] = into;
                    for (at, (vector, into)) in vectors.iter().zip(into).enumerate() {
                        let vector = load(vector);
                        if SUM {
                            totals.add(at, vector);
                        }
                        if STREAM { stream(into, vector) } else { store(into, vector) }
                    }
                }
                // Compilers may make the loads and stores of the loop a call of `memcpy`, before a loop of sums.
                std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            }
            let (vectors, tail) = rest.as_chunks::<WIDTH>();
            let (into_vectors, _) = into_rest.as_chunks_mut::<WIDTH>();
            for at in 0..TURN - 1 {
                if let (Some(vector), Some(into)) = (vectors.get(at), into_vectors.get_mut(at)) {
                    let vector = load(vector);
                    if SUM {
                        totals.add(at % UNROLL, vector);
                    }
                    store(into, vector);
                }
            }
            totals.copy_tail(src, dst, tail.len());
            let edges = usize::from(head > 0) + 1;
            let sum = totals.finish(blocks.len() * TURN + vectors.len(), edges);
            if ODD { sum.rotate_left(8) } else { sum }
        }

        /// Copies a line of each lane in turn, and sums them.
        ///
        /// # Safety
        ///
        /// As for [`Pass`](super::lanes::Pass).
        #[target_feature(enable = $features)]
        unsafe fn copy_lanes<const SUM: bool>(
            src: *const u8,
            dst: *mut u8,
            apart: usize,
            lines: usize,
        ) -> u64 {
            const VECTORS: usize = LINE / WIDTH;
            let mut totals = Totals::zero();
            for line in 0..lines {
                for lane in 0..LANES {
                    for vector in 0..VECTORS {
                        let at = line * LINE + lane * apart + vector * WIDTH;
                        let (from, into) = (src.wrapping_add(at), dst.wrapping_add(at));
                        // SAFETY: the caller's promise: these bytes are there.
                        let from = unsafe { &*from.cast::<[u8; WIDTH]>() };
                        // SAFETY: the same, and they are in no other slice.
                        let into = unsafe { &mut *into.cast::<[u8; WIDTH]>() };
                        let bytes = load(from);
                        if SUM {
                            totals.add((lane * VECTORS + vector) % UNROLL, bytes);
                        }
                        store(into, bytes);
                    }
                }
                if !SUM {
                    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
                }
            }
            totals.finish(lines * LANES * VECTORS, 0)
        }
    };
}

pub(super) use passes;
