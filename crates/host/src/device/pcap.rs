//! A capture file as a device: its frames arrive, once or again and again, as fast as they are taken
//! or by the file's own times.
//!
//! The file is read into memory first, so that no disk is in what is measured. What is sent is
//! counted and freed; `super::record` writes it to another file where that is wanted. Left out: the
//! formats (`plumb_wire::capture`).

use std::io;
use std::path::{Path, PathBuf};

use plumb_base::time::Span;
use plumb_wire::capture::{CaptureError, LinkType, Reader, Record};
use plumb_wire::medium::Capabilities;

use super::memory::{Repeat, Source};

/// How a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often.
    pub repeat: Repeat,
    /// By the file's own times instead of as fast as frames are taken.
    pub paced: bool,
    /// Largest IP packet that may be sent.
    pub mtu: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { repeat: Repeat::Times(1), paced: false, mtu: 1_500 }
    }
}

/// Why a capture cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is no capture, or a damaged one.
    #[error("{}, after {whole} whole packets: {source}{}", path.display(), fix(source, path))]
    Capture {
        /// The file.
        path: PathBuf,
        /// Packets before the trouble.
        whole: usize,
        /// What is wrong.
        source: CaptureError,
    },
    /// Nothing in it.
    #[error("{} holds no packets", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Frames of a kind that no host here can be on the medium of.
    #[error(
        "{} holds frames of link type {}: only Ethernet (1) and raw IP (101, 228, 229) are known",
        path.display(), link_type.0
    )]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The kind.
        link_type: LinkType,
    },
    /// Frames of more than one medium.
    #[error("{} holds frames of several media: choose one with `editcap`", path.display())]
    Mixed {
        /// The file.
        path: PathBuf,
    },
}

fn fix(error: &CaptureError, path: &Path) -> String {
    match error {
        CaptureError::Truncated { .. } | CaptureError::Damaged { .. } => {
            format!("; `editcap {} OUT` keeps what is whole", path.display())
        }
        CaptureError::Foreign(_) | CaptureError::Version { .. } => String::new(),
    }
}

/// A device at which the frames of a capture file arrive.
///
/// # Errors
/// When the file cannot be read, is no capture or not whole, is empty, or is of a medium that is not
/// known here.
pub fn open(path: &Path, settings: Settings) -> Result<Source, PcapError> {
    let file =
        std::fs::read(path).map_err(|source| PcapError::Read { path: path.to_owned(), source })?;
    let records = read(path, &file)?;
    let Some(first) = records.first() else {
        return Err(PcapError::Empty { path: path.to_owned() });
    };
    let mut media = records.iter().map(|record| {
        let link_type = record.link_type;
        link_type.medium().ok_or(PcapError::LinkType { path: path.to_owned(), link_type })
    });
    let medium = media.next().expect("a first record")?;
    for other in media {
        if other? != medium {
            return Err(PcapError::Mixed { path: path.to_owned() });
        }
    }
    let frames = records
        .iter()
        .map(|record| (Span::from_ns(record.time_ns.saturating_sub(first.time_ns)), record.bytes));
    let capabilities = Capabilities::plain(medium, settings.mtu);
    let name = format!("pcap:{}", path.display());
    Ok(Source::with(name, capabilities, frames, settings.repeat, settings.paced))
}

fn read<'a>(path: &Path, file: &'a [u8]) -> Result<Vec<Record<'a>>, PcapError> {
    let wrong = |whole, source| PcapError::Capture { path: path.to_owned(), whole, source };
    let mut records = Vec::new();
    for record in Reader::new(file).map_err(|error| wrong(0, error))? {
        records.push(record.map_err(|error| wrong(records.len(), error))?);
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use plumb_base::time::Instant;
    use plumb_wire::medium::Medium;
    use plumb_wire::packet::{Frames, Pool};
    use plumb_wire::{pcap, pcapng};

    use super::*;
    use crate::device::{Device, DeviceError};

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn the_frames_of_a_file_come_once_and_then_the_device_is_at_its_end() {
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType::RAW);
        pcap::packet(&mut bytes, 1_000, b"first");
        pcap::packet(&mut bytes, 2_000, b"second");
        let file = file_of(&bytes);
        let mut device = open(file.path(), Settings::default()).unwrap();
        assert_eq!(device.capabilities().medium, Medium::Ip);
        let mut pool = Pool::new(Frames::default());
        let mut batch = Vec::new();
        assert_eq!(device.receive(Instant::ORIGIN, &mut batch, 8, &mut pool).unwrap(), 2);
        assert_eq!(pool.bytes(&batch[1]), b"second");
        let end = device.receive(Instant::ORIGIN, &mut batch, 8, &mut pool);
        assert!(matches!(end, Err(DeviceError::Finished)), "{end:?}");
    }

    #[test]
    fn trouble_with_a_file_names_the_file_and_what_to_do() {
        let said = |bytes: &[u8]| {
            let file = file_of(bytes);
            let said = open(file.path(), Settings::default()).unwrap_err().to_string();
            assert!(said.contains(file.path().to_str().unwrap()), "{said}");
            said
        };
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType::ETHERNET);
        assert!(said(&bytes).ends_with("holds no packets"));
        pcap::packet(&mut bytes, 0, b"frame");
        let cut = said(&bytes[..bytes.len() - 1]);
        assert!(cut.contains("after 0 whole packets") && cut.contains("editcap"), "{cut}");
        assert!(said(b"frames, frames").contains("but text"));
        let mut bytes = Vec::new();
        pcap::begin(&mut bytes, LinkType(105));
        pcap::packet(&mut bytes, 0, b"frame");
        assert!(said(&bytes).contains("link type 105"));
        let mut bytes = Vec::new();
        pcapng::begin(&mut bytes, "test");
        pcapng::interface(&mut bytes, LinkType::ETHERNET, "a", 0);
        pcapng::interface(&mut bytes, LinkType::RAW, "b", 0);
        pcapng::packet(&mut bytes, 0, 0, None, b"frame");
        pcapng::packet(&mut bytes, 1, 0, None, b"packet");
        assert!(said(&bytes).contains("several media"));
        let absent = open(Path::new("/nowhere/at.all"), Settings::default()).unwrap_err();
        assert!(absent.to_string().starts_with("cannot read /nowhere/at.all"), "{absent}");
    }
}
