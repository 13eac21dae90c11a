//! A host's key pair with its self-signed certificate, the fingerprint others know it by, and the peers that it has been
//! paired with.
//!
//! One file holds both, so that they never disagree. Files are either old or new, never half: written beside, made
//! durable, put in place at once.

use std::fmt::{self, Write as _};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};

/// The file of the identity within its directory.
const FILE: &str = "identity";
/// What the file begins with.
const MAGIC: &[u8] = b"plumb identity 1\n";
/// More than a certificate and a key of the kinds made here ever take.
const FILE_BYTES_MAX: u64 = 16 * 1024;
/// The name in every certificate: peers are known by fingerprint, not by name.
pub const NAME: &str = "plumb";
/// The file of the peers within its directory.
const PEERS_FILE: &str = "peers";
/// Some ten thousand peers.
const PEERS_BYTES_MAX: u64 = 1 << 20;
/// Longest name that is kept.
const NAME_MAX: usize = 100;
const HEADER: &str = "# Hosts that plumb is paired with. Remove a line to forget one.\n";

/// The fingerprint of a certificate: SHA-256 of its DER form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    /// `sha256:` and 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is no fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "that is not a fingerprint; write sha256: and 64 hexadecimal digits, as the agent prints it"
)]
pub struct FingerprintParseError;

impl FromStr for Fingerprint {
    type Err = FingerprintParseError;

    fn from_str(text: &str) -> Result<Self, FingerprintParseError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(FingerprintParseError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| FingerprintParseError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| FingerprintParseError)?;
        }
        Ok(Self(bytes))
    }
}

/// A key pair and its certificate.
#[derive(Serialize, Deserialize)]
pub struct HostIdentity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// An identity could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The directory or the file.
    #[error(
        "the key of this host cannot be kept in {path} ({error}); make the directory writable, and room there"
    )]
    File {
        /// Which.
        path: PathBuf,
        /// The system's word.
        error: io::Error,
    },
    /// Others may read the key.
    #[error("others may read the key in {path}; 'chmod 600 {path}', or remove it and pair again")]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// Another user may put another key there.
    #[error(
        "the key in {path} belongs to user {owner}, who can replace it; run plumb as that user, or remove the file \
         and pair again"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// Not what was written.
    #[error("{path} is not a key of plumb's; remove it and pair again")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// No key was made.
    #[error("no key could be made ({0}); the system's source of randomness may be missing")]
    Generate(String),
}

impl HostIdentity {
    /// A new key pair with its certificate (ECDSA on P-256, which every TLS implementation has).
    ///
    /// # Errors
    /// Without randomness.
    pub fn generate() -> Result<Self, IdentityError> {
        let fault = |error: rcgen::Error| IdentityError::Generate(error.to_string());
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(fault)?;
        let mut parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).map_err(fault)?;
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, NAME);
        let certificate = parameters.self_signed(&key).map_err(fault)?;
        Ok(Self { certificate: certificate.der().to_vec(), key: key.serialize_der() })
    }

    /// The identity kept in `directory`, made at the first time.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn open_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(FILE);
        let fault = |error| IdentityError::File { path: path.clone(), error };
        match Self::open(&path) {
            Err(IdentityError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let identity = Self::generate()?;
        let body = postcard::to_stdvec(&identity)
            .map_err(|error| IdentityError::Generate(error.to_string()))?;
        create_private_directory(directory).map_err(fault)?;
        match create(&path, &[MAGIC, &body].concat()) {
            Ok(()) => Ok(identity),
            // Another process made one at the same moment: there is only one.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::open(&path),
            Err(error) => Err(fault(error)),
        }
    }

    fn open(path: &Path) -> Result<Self, IdentityError> {
        let fault = |error| IdentityError::File { path: path.to_owned(), error };
        if let Some(owner) = other_owner(path).map_err(fault)? {
            return Err(IdentityError::Foreign { path: path.to_owned(), owner });
        }
        let mode = fs::metadata(path).map_err(fault)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed { path: path.to_owned() });
        }
        let bytes = read_bounded(path, FILE_BYTES_MAX).map_err(fault)?;
        let damaged = || IdentityError::Damaged { path: path.to_owned() };
        let body = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let identity: Self = postcard::from_bytes(body).map_err(|_| damaged())?;
        // Certificate and key must belong together; rustls checks that.
        let key = rustls::crypto::ring::sign::any_supported_type(&identity.key())
            .map_err(|_| damaged())?;
        rustls::sign::CertifiedKey::new(vec![identity.certificate()], key)
            .keys_match()
            .map_err(|_| damaged())?;
        Ok(identity)
    }

    /// The fingerprint by which others know it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.clone())
    }

    /// The private key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }
}

impl fmt::Debug for HostIdentity {
    /// Never the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostIdentity")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

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
    /// Its fingerprint.
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
    /// Another user decides who is in it.
    #[error(
        "the list of peers in {path} belongs to user {owner}, who can change it; run plumb as that user, or remove the \
         file and pair again"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// A line means nothing.
    #[error(
        "line {line} of {path} is not 'agent|client NAME sha256:…'; correct or remove the line"
    )]
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
        Self { path: directory.join(PEERS_FILE) }
    }

    /// Every peer, in the order of pairing.
    ///
    /// # Errors
    /// [`PeerStoreError`]; a file that is not there is an empty list.
    pub fn read(&self) -> Result<Vec<PairedPeer>, PeerStoreError> {
        let bytes = match read_bounded(&self.path, PEERS_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.fault(error)),
        };
        if let Some(owner) = other_owner(&self.path).map_err(|error| self.fault(error))? {
            return Err(PeerStoreError::Foreign { path: self.path.clone(), owner });
        }
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
        create_private_directory(directory).map_err(|error| self.fault(error))?;
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
        replace(&self.path, text.as_bytes()).map_err(|error| self.fault(error))
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

/// Makes a directory and its parents, for its owner alone.
fn create_private_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Who owns a file, where that is not the user of this process.
fn other_owner(path: &Path) -> io::Result<Option<u32>> {
    let owner = fs::metadata(path)?.uid();
    Ok(Some(owner).filter(|&owner| owner != plumb_sys::process::effective_user()))
}

/// Reads a file of at most `bytes_max`.
fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > bytes_max) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is larger than it can be",
        ));
    }
    Ok(bytes)
}

/// Puts `bytes` in the place of `path`, readable for the owner alone.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, bytes)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))?;
    make_entry_durable(path)
}

/// Puts `bytes` at `path` unless somebody else has been quicker.
///
/// # Errors
/// `AlreadyExists` then; what was there stays.
fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = write_beside(path, bytes)?;
    // A link is made whole or not at all, and never over another file.
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside).ok();
    linked?;
    make_entry_durable(path)
}

fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{count}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok(beside)
}

fn make_entry_durable(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_read_again() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("net");
        let first = HostIdentity::open_or_create(&directory).unwrap();
        let second = HostIdentity::open_or_create(&directory).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert!(!format!("{first:?}").contains("key"));
    }

    #[test]
    fn an_exposed_or_damaged_key_is_refused_with_the_way_out() {
        let place = tempfile::tempdir().unwrap();
        HostIdentity::open_or_create(place.path()).unwrap();
        let path = place.path().join(FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = HostIdentity::open_or_create(place.path()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        let other = postcard::to_stdvec(&HostIdentity {
            certificate: HostIdentity::generate().unwrap().certificate,
            key: HostIdentity::generate().unwrap().key,
        });
        for bytes in [b"".to_vec(), MAGIC.to_vec(), [MAGIC, &other.unwrap()].concat()] {
            replace(&path, &bytes).unwrap();
            let error = HostIdentity::open_or_create(place.path()).unwrap_err();
            assert!(matches!(error, IdentityError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn a_key_and_a_list_of_another_user_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join(FILE);
        HostIdentity::open_or_create(place.path()).unwrap();
        // Without the right to change a file's owner, one of root's is used.
        let is_given = std::os::unix::fs::chown(&own, Some(65_534), None).is_ok();
        let path = if is_given { own } else { PathBuf::from("/etc/passwd") };
        let error = HostIdentity::open(&path).unwrap_err();
        assert!(matches!(error, IdentityError::Foreign { .. }), "{error}");
        let error = PeerStore { path }.read().unwrap_err();
        assert!(matches!(error, PeerStoreError::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_fingerprint_survives_being_written_down() {
        let fingerprint = Fingerprint::of(b"a certificate");
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        for text in ["", "sha256:", "sha256:00", "sha256:é", &"g".repeat(64), &"0".repeat(65)] {
            assert_eq!(text.parse::<Fingerprint>(), Err(FingerprintParseError), "{text}");
        }
    }

    #[test]
    fn a_file_is_private_replaced_whole_and_never_created_over_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/er/file");
        create_private_directory(path.parent().unwrap()).unwrap();
        create(&path, b"first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, b"other").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_bounded(&path, 5).unwrap(), b"first");
        replace(&path, b"second").unwrap();
        assert_eq!(read_bounded(&path, 6).unwrap(), b"second");
        assert_eq!(read_bounded(&path, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing left beside");
    }

    fn paired_agent(name: &str, certificate: &[u8]) -> PairedPeer {
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
        peers.add(&paired_agent("lab:5210", b"old")).unwrap();
        peers.add(&paired_agent("lab:5210", b"new")).unwrap();
        let client =
            PairedPeer { kind: PairedRole::Client, ..paired_agent("a b\nagent x", b"laptop") };
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
        fs::write(place.path().join(PEERS_FILE), "# fine\n\nagent x sha256:12\n").unwrap();
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
                scope.spawn(move || peers.add(&paired_agent(&format!("host{n}"), &[n])).unwrap());
            }
        });
        assert_eq!(peers.read().unwrap().len(), 8);
    }
}
