//! The kernels, and the choice of the best one that the processor has.
//!
//! Left out: the instructions, one kernel a file.

mod portable;
pub(crate) mod short;

use crate::Sum;

/// One way to sum and to copy, by the instructions that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// 64-bit additions, on any processor.
    Portable,
}

impl Kernel {
    /// Every kernel, whether or not this processor has it; the better ones later.
    pub const ALL: &[Self] = &[Self::Portable];

    /// The name that figures and tables use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
        }
    }

    /// Whether this processor has the instructions.
    pub fn available(self) -> bool {
        match self {
            Self::Portable => true,
        }
    }

    /// The one that [`sum`](crate::sum) and [`copy_and_sum`](crate::copy_and_sum) use here.
    pub fn best() -> Self {
        Self::Portable
    }

    /// As [`sum`](crate::sum), by this kernel.
    ///
    /// # Panics
    ///
    /// When the kernel is not [`available`](Self::available).
    pub fn sum(self, bytes: &[u8]) -> Sum {
        assert!(self.available(), "this processor has no {}: ask available() first", self.name());
        Sum::from_le(portable::sum(bytes))
    }

    /// As [`copy_and_sum`](crate::copy_and_sum), by this kernel.
    ///
    /// # Panics
    ///
    /// When the kernel is not [`available`](Self::available), or the lengths differ.
    pub fn copy_and_sum(self, src: &[u8], dst: &mut [u8]) -> Sum {
        assert!(self.available(), "this processor has no {}: ask available() first", self.name());
        assert_eq!(src.len(), dst.len(), "a copy has the length of its source");
        Sum::from_le(portable::copy_and_sum(src, dst))
    }
}

/// The best kernel's sum, without the short path.
pub(crate) fn sum(bytes: &[u8]) -> Sum {
    Kernel::best().sum(bytes)
}

/// The best kernel's copy and sum, without the short path. The lengths are equal.
pub(crate) fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> Sum {
    Kernel::best().copy_and_sum(src, dst)
}
