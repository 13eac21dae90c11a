//! The kernels by name, with their known checksums and reference times, and their inputs: a generator that never changes, and
//! what is made of it.

use std::fmt;

mod digest;
mod interpreter;
mod json;
mod lz77;
mod paths;
mod records;

/// One of the six.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexKernel {
    /// Compresses text by LZ77 with hash chains, and expands it again.
    Lz77,
    /// Sorts records by key, and counts them by name in a hash table.
    Records,
    /// Splits JSON into tokens, and reads its numbers and strings.
    Json,
    /// SHA-256 and CRC-32 of the same bytes.
    Digest,
    /// Interprets the byte code of a program: a sieve and nested loops.
    Interpreter,
    /// Shortest paths in a sparse graph, by Dijkstra's algorithm with a binary heap.
    Paths,
}

/// A kernel gave a result that is not the known one: the processor, its memory or the compiler is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelError {
    /// Which kernel.
    pub kernel: IndexKernel,
    /// What it gave.
    pub found: u64,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, known) = (self.kernel.name(), self.kernel.checksum());
        write!(f, "kernel {name} of the processor index gave {:016x}, not {known:016x}", self.found)
    }
}

impl std::error::Error for KernelError {}

impl IndexKernel {
    /// Every kernel.
    pub const ALL: [Self; 6] =
        [Self::Lz77, Self::Records, Self::Json, Self::Digest, Self::Interpreter, Self::Paths];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lz77 => "lz77",
            Self::Records => "records",
            Self::Json => "json",
            Self::Digest => "digest",
            Self::Interpreter => "interpreter",
            Self::Paths => "paths",
        }
    }

    /// The kernel of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// The checksum of its result in this version.
    pub const fn checksum(self) -> u64 {
        match self {
            Self::Lz77 => 0xD48A_FB29_60FD_A304,
            Self::Records => 0x53C6_87F6_1EE0_34EC,
            Self::Json => 0x83C1_A7C5_B5A3_F0B5,
            Self::Digest => 0x4623_8C8F_9098_CD8D,
            Self::Interpreter => 0xB1E2_8654_BA6D_E9F7,
            Self::Paths => 0x38E8_46A1_EEE8_8617,
        }
    }

    /// Nanoseconds that one pass takes on the reference machine.
    pub const fn reference_ns(self) -> f64 {
        match self {
            Self::Lz77 => 7.1e6,
            Self::Records => 6.9e6,
            Self::Json => 9.2e6,
            Self::Digest => 9.6e6,
            Self::Interpreter => 8.4e6,
            Self::Paths => 7.2e6,
        }
    }

    /// Makes its input, which is not part of its time.
    pub fn prepare(self) -> PreparedKernel {
        let input = match self {
            Self::Lz77 => KernelInput::Lz77(lz77::PackedText::new()),
            Self::Records => KernelInput::Records(records::RecordTable::new()),
            Self::Json => KernelInput::Json(json::input()),
            Self::Digest => KernelInput::Digest(digest::input()),
            Self::Interpreter => KernelInput::Interpreter(interpreter::RegisterMachine::new()),
            Self::Paths => KernelInput::Paths(Box::new(paths::SparseGraph::new())),
        };
        PreparedKernel { kernel: self, input }
    }
}

/// A kernel with its input in memory.
#[derive(Debug)]
pub struct PreparedKernel {
    kernel: IndexKernel,
    input: KernelInput,
}

#[derive(Debug)]
enum KernelInput {
    Lz77(lz77::PackedText),
    Records(records::RecordTable),
    Json(Vec<u8>),
    Digest(Vec<u8>),
    Interpreter(interpreter::RegisterMachine),
    Paths(Box<paths::SparseGraph>),
}

impl PreparedKernel {
    /// Does the kernel's work once, on memory that was reserved before; its checksum.
    pub fn run(&mut self) -> u64 {
        match &mut self.input {
            KernelInput::Lz77(input) => input.run(),
            KernelInput::Records(input) => input.run(),
            KernelInput::Json(text) => json::run(text),
            KernelInput::Digest(bytes) => digest::run(bytes),
            KernelInput::Interpreter(machine) => machine.run(),
            KernelInput::Paths(input) => input.run(),
        }
    }

    /// The same, checked.
    ///
    /// # Errors
    /// The result is not the known one.
    pub fn run_checked(&mut self) -> Result<(), KernelError> {
        let (kernel, found) = (self.kernel, self.run());
        if found == kernel.checksum() { Ok(()) } else { Err(KernelError { kernel, found }) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_gives_its_known_result_twice() {
        for kernel in IndexKernel::ALL {
            let mut prepared = kernel.prepare();
            for _ in 0..2 {
                assert_eq!(prepared.run_checked(), Ok(()));
            }
            assert_eq!(IndexKernel::from_name(kernel.name()), Some(kernel));
        }
    }

    #[test]
    fn a_wrong_result_is_told_with_both_checksums() {
        let error = KernelError { kernel: IndexKernel::Json, found: 1 }.to_string();
        assert!(error.contains("json") && error.contains("0000000000000001"), "{error}");
    }
}
