//! The peers that this host has been paired with: a file of lines, as ssh keeps its known hosts.
//!
//! `agent NAME FINGERPRINT` is an agent that this host may measure with; `client NAME FINGERPRINT` may
//! measure with this host's agent.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::identity::{self, Fingerprint};

/// The file of the peers within its directory.
const FILE: &str = "peers";
/// Some ten thousand peers.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name that is kept.
pub const NAME_MAX: usize = 100;
const HEADER: &str = "# Whom plumb has been paired with. Remove a line to forget a peer.\n";

/// What a peer is to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairedRole {
    /// An agent that this host measures with, by the name it is called with.
    Agent,
    /// A client that may use the agent on this host, by the name it gave itself.
    Client,
}

impl PairedRole {
    const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Client => "client",
        }
    }
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedPeer {
    /// What it is to this host.
    pub kind: PairedRole,
    /// What it is called.
    pub name: String,
    /// What it is known by.
    pub fingerprint: Fingerprint,
}

/// The file.
#[derive(Clone, Debug)]
pub struct PeerStore {
    path: PathBuf,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeerStoreError {
    /// Reading or writing failed.
    #[error(
        "the list of peers in {path} cannot be used ({error}); make it readable and writable, and room there"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// A line means nothing.
    #[error("line {line} of {path} is not 'agent|client NAME sha256:…'; mend or remove the line")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}

impl PeerStore {
    /// The list kept in `directory`, which need not exist.
    pub fn in_directory(directory: &Path) -> Self {
        Self { path: directory.join(FILE) }
    }

    /// Every peer, in the order of pairing.
    ///
    /// # Errors
    /// [`PeerStoreError`]; a file that is not there is an empty list.
    pub fn read(&self) -> Result<Vec<PairedPeer>, PeerStoreError> {
        let bytes = match identity::read_bounded(&self.path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.fault(error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(line, text)| {
                peer(text).ok_or_else(|| PeerStoreError::Line { path: self.path.clone(), line })
            })
            .collect()
    }

    /// The name of the client with this certificate, if it is one.
    ///
    /// # Errors
    /// As [`PeerStore::read`].
    pub fn client(&self, fingerprint: Fingerprint) -> Result<Option<String>, PeerStoreError> {
        let found = self.read()?.into_iter();
        let mut found =
            found.filter(|p| p.kind == PairedRole::Client && p.fingerprint == fingerprint);
        Ok(found.next().map(|peer| peer.name))
    }

    /// The certificate that the agent of this name showed when it was paired with.
    ///
    /// # Errors
    /// As [`PeerStore::read`].
    pub fn agent(&self, name: &str) -> Result<Option<Fingerprint>, PeerStoreError> {
        let name = sanitize_name(name);
        let mut found = self.read()?.into_iter().rev();
        Ok(found
            .find(|p| p.kind == PairedRole::Agent && p.name == name)
            .map(|peer| peer.fingerprint))
    }

    /// Adds a peer; an agent of the same name, and a client of the same certificate, give way to it.
    ///
    /// # Errors
    /// As [`PeerStore::read`], and where nothing can be written.
    pub fn add(&self, peer: &PairedPeer) -> Result<(), PeerStoreError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        identity::create_private_directory(directory).map_err(|error| self.fault(error))?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600);
        let lock = lock.open(self.path.with_extension("lock")).map_err(|e| self.fault(e))?;
        lock.lock().map_err(|error| self.fault(error))?;
        let mut peers = self.read()?;
        let name = sanitize_name(&peer.name);
        peers.retain(|old| match peer.kind {
            PairedRole::Agent => old.kind != PairedRole::Agent || old.name != name,
            PairedRole::Client => {
                old.kind != PairedRole::Client || old.fingerprint != peer.fingerprint
            }
        });
        peers.push(PairedPeer { name, ..peer.clone() });
        let mut text = HEADER.to_owned();
        for peer in peers {
            writeln!(text, "{} {} {}", peer.kind.word(), peer.name, peer.fingerprint)
                .expect("a string takes every line");
        }
        identity::replace(&self.path, text.as_bytes()).map_err(|error| self.fault(error))
    }

    fn fault(&self, error: io::Error) -> PeerStoreError {
        PeerStoreError::File { path: self.path.clone(), error }
    }
}

fn peer(line: &str) -> Option<PairedPeer> {
    let mut words = line.split_whitespace();
    let kind = match words.next()? {
        "agent" => PairedRole::Agent,
        "client" => PairedRole::Client,
        _ => return None,
    };
    let name = words.next()?.to_owned();
    let fingerprint = words.next()?.parse().ok()?;
    words.next().is_none().then_some(PairedPeer { kind, name, fingerprint })
}

/// A name that is one word of plain characters, whatever the client sent.
pub fn sanitize_name(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).take(NAME_MAX).collect();
    if plain.is_empty() { "unnamed".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, certificate: &[u8]) -> PairedPeer {
        PairedPeer {
            kind: PairedRole::Agent,
            name: name.to_owned(),
            fingerprint: Fingerprint::of(certificate),
        }
    }

    #[test]
    fn peers_are_found_again_by_name_and_by_certificate() {
        let place = tempfile::tempdir().unwrap();
        let peers = PeerStore::in_directory(&place.path().join("net"));
        assert_eq!(peers.read().unwrap(), Vec::new());
        peers.add(&agent("lab:5210", b"old")).unwrap();
        peers.add(&agent("lab:5210", b"new")).unwrap();
        let client = PairedPeer { kind: PairedRole::Client, ..agent("a b\nagent x", b"laptop") };
        peers.add(&client).unwrap();
        assert_eq!(peers.agent("lab:5210").unwrap(), Some(Fingerprint::of(b"new")));
        assert_eq!(peers.agent("elsewhere:5210").unwrap(), None);
        let name = peers.client(Fingerprint::of(b"laptop")).unwrap();
        assert_eq!(name.as_deref(), Some("a_b_agent_x"));
        // An agent is no client, nor the other way round.
        assert_eq!(peers.client(Fingerprint::of(b"new")).unwrap(), None);
        assert_eq!(peers.read().unwrap().len(), 2);
    }

    #[test]
    fn a_line_that_means_nothing_is_named() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), "# fine\n\nagent x sha256:12\n").unwrap();
        let error = PeerStore::in_directory(place.path()).read().unwrap_err();
        assert!(matches!(error, PeerStoreError::Line { line: 3, .. }), "{error}");
    }

    #[test]
    fn many_at_once_lose_nobody() {
        let place = tempfile::tempdir().unwrap();
        let peers = PeerStore::in_directory(place.path());
        std::thread::scope(|scope| {
            for n in 0..8_u8 {
                let peers = &peers;
                scope.spawn(move || peers.add(&agent(&format!("host{n}"), &[n])).unwrap());
            }
        });
        assert_eq!(peers.read().unwrap().len(), 8);
    }
}
