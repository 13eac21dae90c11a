//! What the vector kernels have in common: where a pass begins and ends.
//!
//! A kernel has `WIDTH`, `load`, `store` and `stream`, and gives [`passes`] its target features, its totals of what is
//! copied and those of what is only read. An *edge* is fewer bytes than a vector has: the *head* before `dst` is
//! aligned, and the *tail*, of which a kernel also gets what comes before. It is a macro because a generic
//! function cannot take over the target features that its parameters need.

/// Vectors a turn: as many totals, so that no addition waits for the one before.
pub(super) const UNROLL: usize = 4;

/// Writes a kernel's passes, with the target features that it needs.
macro_rules! passes {
    ($features:literal, $copied:ident, $read:ident) => {
        pub(in crate::kernel) static PASSES: $crate::kernel::KernelFunctions =
            $crate::kernel::KernelFunctions {
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
            if bytes.len() < WIDTH {
                return $crate::kernel::short::sum(bytes);
            }
            let mut totals = $read::zero();
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
            totals.add_tail(bytes, tail.len());
            totals.finish(blocks.len() * UNROLL + vectors.len(), 1)
        }

        #[target_feature(enable = $features)]
        fn copy_and_sum<const STREAM: bool, const SUM: bool>(src: &[u8], dst: &mut [u8]) -> u64 {
            if src.len() < WIDTH {
                return $crate::kernel::short::copy_and_sum(src, dst);
            }
            let dst = &mut dst[..src.len()];
            let head = if src.len() < 2 * BLOCK { 0 } else { dst.as_ptr().align_offset(WIDTH) };
            if (head | src.len()) % 2 == 0 {
                copy_body::<STREAM, SUM, false>(src, dst, head)
            } else {
                copy_odd::<STREAM, SUM>(src, dst, head)
            }
        }

        /// Apart, as what an odd edge needs would be saved and restored around every copy.
        #[inline(never)]
        #[target_feature(enable = $features)]
        fn copy_odd<const STREAM: bool, const SUM: bool>(
            src: &[u8],
            dst: &mut [u8],
            head: usize,
        ) -> u64 {
            copy_body::<STREAM, SUM, true>(src, dst, head)
        }

        /// Copies whole vectors from where `dst` is aligned, `head` bytes on, then the tail, then the head;
        /// either edge is odd only if they may be `ODD`.
        #[inline]
        #[target_feature(enable = $features)]
        fn copy_body<const STREAM: bool, const SUM: bool, const ODD: bool>(
            src: &[u8],
            dst: &mut [u8],
            head: usize,
        ) -> u64 {
            let mut totals = $copied::zero();
            let (body, into) = (&src[head..], &mut dst[head..]);
            let into = &mut into[..body.len()];
            let (blocks, rest) = body.as_chunks::<BLOCK>();
            let (into_blocks, into_rest) = into.as_chunks_mut::<BLOCK>();
            let mut turns = blocks.iter().zip(into_blocks);
            // The first turn begins at zero, which a compiler knows only of a turn by itself.
            if let Some((block, into)) = turns.next() {
                copy_block::<STREAM, SUM>(&mut totals, block, into);
            }
            for (block, into) in turns {
                copy_block::<STREAM, SUM>(&mut totals, block, into);
            }
            let (vectors, tail) = rest.as_chunks::<WIDTH>();
            let (into_vectors, _) = into_rest.as_chunks_mut::<WIDTH>();
            for at in 0..UNROLL - 1 {
                if let (Some(vector), Some(into)) = (vectors.get(at), into_vectors.get_mut(at)) {
                    let vector = load(vector);
                    if SUM {
                        totals.add(at, vector);
                    }
                    store(into, vector);
                }
            }
            totals.copy_tail(body, into, tail.len(), ODD && tail.len() % 2 == 1);
            // The rest of the words begin at the head's parity.
            let is_odd = ODD && head % 2 == 1;
            if head > 0 {
                totals.copy_head(src, dst, head, is_odd);
            }
            let edges = usize::from(head > 0) + 1;
            let sum = totals.finish(blocks.len() * UNROLL + vectors.len(), edges);
            if is_odd { sum.rotate_left(8) } else { sum }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn copy_block<const STREAM: bool, const SUM: bool>(
            totals: &mut $copied,
            block: &[u8; BLOCK],
            into: &mut [u8; BLOCK],
        ) {
            let (vectors, _) = block.as_chunks::<WIDTH>();
            let (into, _) = into.as_chunks_mut::<WIDTH>();
            for (at, (vector, into)) in vectors.iter().zip(into).enumerate() {
                let vector = load(vector);
                if SUM {
                    totals.add(at, vector);
                }
                if STREAM { stream(into, vector) } else { store(into, vector) }
            }
            // Compilers may make the loads and stores of a loop a call of `memcpy`, before one of sums.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }

        /// Copies a line of each lane in turn, and sums them.
        ///
        /// # Safety
        ///
        /// As for `LaneCopyFn`.
        #[target_feature(enable = $features)]
        unsafe fn copy_lanes<const SUM: bool>(
            src: *const u8,
            dst: *mut u8,
            apart: usize,
            lines: usize,
        ) -> u64 {
            const VECTORS: usize = LINE / WIDTH;
            let mut totals = $copied::zero();
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
