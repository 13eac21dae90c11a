//! The machine and its settings, as they are: what a result must be read beside (rule 20).
//!
//! Every fact is a dotted key and a line of text. A file that is missing says `absent`, one that cannot be read says
//! why; neither is an error. Names of hosts and users, addresses of any kind, serial numbers, and paths that could hold
//! one are never recorded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;

use flate2::read::GzDecoder;

pub(crate) mod kernel;
pub(crate) mod noise;
pub(crate) mod process;
pub(crate) mod processor;

/// Everything about this machine and this process that can change a measurement.
///
/// Keys are dotted and lower-case (`cpu.model`, `net.ipv4.tcp_congestion_control`); the same key
/// means the same on every machine. Takes a few milliseconds, more with hundreds of CPUs.
pub fn capture() -> BTreeMap<String, String> {
    let mut facts = EnvironmentFacts::new(&KernelFiles::machine());
    facts.put("cpu.hypervisor", processor::hypervisor(&facts.tree));
    process::probe(&mut facts);
    kernel::probe(&mut facts);
    facts.read_all();
    facts.map
}

/// Facts being gathered from a tree.
struct EnvironmentFacts {
    tree: KernelFiles,
    map: BTreeMap<String, String>,
}

impl EnvironmentFacts {
    fn new(tree: &KernelFiles) -> Self {
        Self { tree: tree.clone(), map: BTreeMap::new() }
    }

    fn read_all(&mut self) {
        processor::read(self);
        kernel::read(self);
        kernel::memory(self);
        kernel::network(self);
        process::read(self);
    }

    /// Records a fact; an empty one is `none`.
    fn put(&mut self, key: &str, value: impl Into<String>) {
        let value = Some(value.into()).filter(|value| !value.is_empty());
        self.map.insert(key.to_owned(), value.unwrap_or_else(|| "none".to_owned()));
    }

    /// Records the outcome of a question to the kernel.
    fn put_answer<T: ToString>(&mut self, key: &str, answer: io::Result<T>) {
        let text = answer.map_or_else(|error| format!("unreadable: {error}"), |v| v.to_string());
        self.put(key, text);
    }

    /// Records a file as one line of text, or why there is none.
    fn file(&mut self, key: &str, path: &str) {
        let text = self.tree.line_or_reason(path);
        self.put(key, text);
    }

    /// Records files, each under its key.
    fn files(&mut self, files: &[(&str, &str)]) {
        for (key, path) in files {
            self.file(key, path);
        }
    }

    /// Records sysctls under their own names: `net.core.rmem_max`.
    fn sysctls(&mut self, names: &str) {
        for name in names.split(' ') {
            // /proc keeps net.core.rmem_max in sys/net/core/rmem_max.
            self.file(name, &format!("proc/sys/{}", name.replace('.', "/")));
        }
    }

    /// Records the values of a text of `name: value` lines, each under its key.
    fn fields(&mut self, text: &Result<String, KernelFileError>, fields: &[(&str, &str)]) {
        for (key, name) in fields {
            let value = match text {
                Ok(text) => field(text, name).unwrap_or("absent").to_owned(),
                Err(missing) => missing.to_string(),
            };
            self.put(key, value);
        }
    }

    /// Records the choice of a file that marks it with brackets: `always [madvise] never`.
    fn choice(&mut self, key: &str, path: &str) {
        let text = self.tree.line_or_reason(path);
        self.put(key, bracketed(&text).unwrap_or(&text).to_owned());
    }
}

/// The word in square brackets.
pub(crate) fn bracketed(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

/// The value after `key` and a colon in a text of such lines (/proc/cpuinfo, /proc/self/status).
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// Longest file that is read: /proc and /sys hold text of a few pages.
const BYTES_MAX: u64 = 4 << 20;

/// A directory tree with `proc` and `sys` in it: the machine's own, or a fixture.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    root: PathBuf,
}

/// Why a file gave no text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelFileError {
    /// There is no such file: the kernel lacks the feature, or hides it.
    #[error("absent")]
    Absent,
    /// It is there, but reading it failed.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

impl KernelFiles {
    /// The machine plumb runs on.
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// A tree below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where `path`, written without a leading slash, is.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The whole text of a file, without white space around it.
    ///
    /// # Errors
    /// Says whether the file is absent or cannot be read.
    pub fn text(&self, path: &str) -> Result<String, KernelFileError> {
        let mut bytes = Vec::new();
        File::open(self.path(path))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| KernelFileError::from(&error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The whole text of a file compressed with gzip.
    ///
    /// # Errors
    /// As for [`Self::text`].
    pub fn compressed_text(&self, path: &str) -> Result<String, KernelFileError> {
        let mut bytes = Vec::new();
        File::open(self.path(path))
            .and_then(|file| {
                GzDecoder::new(file.take(BYTES_MAX)).take(BYTES_MAX).read_to_end(&mut bytes)
            })
            .map_err(|error| KernelFileError::from(&error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file on one line, or the reason why there is none.
    pub fn line_or_reason(&self, path: &str) -> String {
        match self.text(path) {
            Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
            Err(missing) => missing.to_string(),
        }
    }

    /// The number in a file, if it holds just that.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path).ok()?.parse().ok()
    }

    /// Whether there is such a file or directory.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, sorted; none where it is absent or unreadable.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl From<&io::Error> for KernelFileError {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Absent,
            io::ErrorKind::PermissionDenied => Self::Unreadable("permission denied".to_owned()),
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
