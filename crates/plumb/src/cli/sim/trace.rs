//! What is kept of a simulation's packets: a digest, or a recording.

use std::cell::RefCell;
use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;

use plumb_base::time::Instant;
use plumb_sim::simulation::{PacketObserver, START, Simulation};
use plumb_wire::capture::LinkType;
use plumb_wire::packet::ChecksumState;
use plumb_wire::{checksum, pcapng};
use ring::digest::{Context, SHA256};

/// SHA-256 over moment, link, length and bytes of every packet that arrives.
#[derive(Clone)]
pub struct TraceDigest(Rc<RefCell<Context>>);

impl TraceDigest {
    /// Begins with what happens next.
    pub fn attach(simulation: &mut Simulation) -> Self {
        let digest = Self(Rc::new(RefCell::new(Context::new(&SHA256))));
        simulation.observe(Box::new(digest.clone()));
        digest
    }

    /// The digest in hexadecimal digits.
    pub fn finish(self) -> String {
        hexadecimal(self.0.borrow().clone().finish().as_ref())
    }
}

impl PacketObserver for TraceDigest {
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8], _: ChecksumState) {
        let mut context = self.0.borrow_mut();
        context.update(&at.since_origin().as_ps().to_be_bytes());
        context.update(&link.to_be_bytes());
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    }
}

impl fmt::Debug for TraceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceDigest")
    }
}

/// Bytes that are kept before they are written.
const BUFFER: usize = 64 << 10;

/// Packets as a pcapng file with an interface for each direction of each link, whose packets are those that came out of
/// it. Virtual time begins with 1970, and checksums that hosts left partial are completed.
#[derive(Clone, Debug)]
pub struct PacketRecording(Rc<RefCell<RecordingFile>>);

#[derive(Debug)]
struct RecordingFile {
    file: File,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    error: Option<io::Error>,
}

impl PacketRecording {
    /// Begins with what happens next, in a new file.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn attach(simulation: &mut Simulation, path: &Path) -> io::Result<Self> {
        let mut buffer = Vec::with_capacity(2 * BUFFER);
        pcapng::begin(&mut buffer, concat!("plumb ", env!("CARGO_PKG_VERSION")));
        let network = &simulation.scenario().network;
        for edge in 0..network.edges.len() {
            for is_up in [true, false] {
                pcapng::interface(
                    &mut buffer,
                    LinkType::RAW,
                    &network.direction_name(edge, is_up),
                    0,
                );
            }
        }
        let file = File::create(path)?;
        let file = RecordingFile { file, buffer, scratch: Vec::new(), error: None };
        let recording = Self(Rc::new(RefCell::new(file)));
        simulation.observe(Box::new(recording.clone()));
        Ok(recording)
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The file took no more.
    pub fn finish(self) -> io::Result<()> {
        let mut file = self.0.borrow_mut();
        file.write();
        file.error.take().map_or(Ok(()), Err)
    }
}

impl RecordingFile {
    fn write(&mut self) {
        if self.error.is_none() {
            self.error = self.file.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }
}

impl PacketObserver for PacketRecording {
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8], state: ChecksumState) {
        let mut recording = self.0.borrow_mut();
        let RecordingFile { buffer, scratch, .. } = &mut *recording;
        scratch.clear();
        scratch.extend_from_slice(bytes);
        if let ChecksumState::Partial { start, offset } = state {
            checksum::complete(scratch, usize::from(start), usize::from(offset));
        }
        pcapng::packet(buffer, link, (at - START).as_ns(), None, scratch);
        if buffer.len() >= BUFFER {
            recording.write();
        }
    }
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every text");
        text
    })
}
