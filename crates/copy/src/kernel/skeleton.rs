//! What the vector kernels have in common: where a pass begins and ends.
//!
//! A kernel's file brings `WIDTH`, `Totals`, `load`, `store` and `stream`; [`passes`] writes its
//! passes around them. It is a macro because a generic function cannot take over the target
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
        const BLOCK: usize = WIDTH * UNROLL;

        #[target_feature(enable = $features)]
        fn sum(bytes: &[u8]) -> u64 {
            let mut totals = Totals::zero();
            let (blocks, rest) = bytes.as_chunks::<BLOCK>();
            for block in blocks {
                let (vectors, _) = block.as_chunks::<WIDTH>();
                for (at, vector) in vectors.iter().enumerate() {
                    totals.add(at, load(vector));
                }
            }
            let (vectors, tail) = rest.as_chunks::<WIDTH>();
            for at in 0..UNROLL - 1 {
                if let Some(vector) = vectors.get(at) {
                    totals.add(at, load(vector));
                }
            }
            totals.add_edge(tail);
            totals.finish(blocks.len() * UNROLL + vectors.len(), 1)
        }

        #[target_feature(enable = $features)]
        fn copy_and_sum<const STREAM: bool, const SUM: bool>(src: &[u8], dst: &mut [u8]) -> u64 {
            if src.len() < WIDTH {
                return $crate::kernel::short::copy_and_sum(src, dst);
            }
            let dst = &mut dst[..src.len()];
            let mut totals = Totals::zero();
            let head = if src.len() < 2 * BLOCK { 0 } else { dst.as_ptr().align_offset(WIDTH) };
            if head == 0 {
                return copy_body::<STREAM, SUM>(src, dst, totals, 0);
            }
            // Up to where `dst` is aligned. The rest of the words then begin at its parity.
            let is_odd = head % 2 == 1;
            let (edge, src) = src.split_at(head);
            let (into, dst) = dst.split_at_mut(head);
            totals.copy_edge(edge, into, is_odd);
            let sum = copy_body::<STREAM, SUM>(src, dst, totals, 1);
            if is_odd { sum.rotate_left(8) } else { sum }
        }

        /// Copies whole vectors, and adds them and the bytes left over to `totals`, which has
        /// `edges` edges already.
        #[inline]
        #[target_feature(enable = $features)]
        fn copy_body<const STREAM: bool, const SUM: bool>(
            src: &[u8],
            dst: &mut [u8],
            mut totals: Totals,
            edges: usize,
        ) -> u64 {
            let dst = &mut dst[..src.len()];
            let (blocks, rest) = src.as_chunks::<BLOCK>();
            let (into_blocks, into_rest) = dst.as_chunks_mut::<BLOCK>();
            for (block, into) in blocks.iter().zip(into_blocks) {
                let (vectors, _) = block.as_chunks::<WIDTH>();
                let (into, _) = into.as_chunks_mut::<WIDTH>();
                for (at, (vector, into)) in vectors.iter().zip(into).enumerate() {
                    let vector = load(vector);
                    if SUM {
                        totals.add(at, vector);
                    }
                    if STREAM { stream(into, vector) } else { store(into, vector) }
                }
                if !SUM {
                    // Compilers make a loop of nothing but loads and stores a call of `memcpy`.
                    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
                }
            }
            let (vectors, tail) = rest.as_chunks::<WIDTH>();
            let (into_vectors, into_tail) = into_rest.as_chunks_mut::<WIDTH>();
            for at in 0..UNROLL - 1 {
                if let (Some(vector), Some(into)) = (vectors.get(at), into_vectors.get_mut(at)) {
                    let vector = load(vector);
                    if SUM {
                        totals.add(at, vector);
                    }
                    store(into, vector);
                }
            }
            totals.copy_edge(tail, into_tail, false);
            totals.finish(blocks.len() * UNROLL + vectors.len(), edges + 1)
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
