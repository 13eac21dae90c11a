//! The machine and its settings, as they are: what a result must be read beside (rule 20).
//!
//! Every fact is a dotted key and a line of text. A file that is missing says `absent`, one that
//! cannot be read says why; neither is an error. Left out on purpose: names of hosts and users,
//! addresses of any kind, serial numbers, and paths that could hold one.

use std::collections::BTreeMap;

pub mod cgroup;
#[cfg(test)]
pub(crate) mod fixture;
mod kernel;
mod memory;
pub(crate) mod network;
pub mod noise;
mod process;
pub(crate) mod processor;
pub mod tree;

use tree::Tree;

/// Everything about this machine and this process that can change a measurement.
///
/// Keys are dotted and lower-case (`cpu.model`, `net.ipv4.tcp_congestion_control`); the same key
/// means the same on every machine. Takes a few milliseconds, more with hundreds of CPUs.
pub fn capture() -> BTreeMap<String, String> {
    let mut facts = Facts::new(&Tree::machine());
    facts.put("cpu.hypervisor", processor::hypervisor(&facts.tree));
    process::probe(&mut facts);
    kernel::probe(&mut facts);
    network::probe(&mut facts);
    facts.read_all();
    facts.map
}

/// The part of [`capture`] that comes from files, below a root.
pub fn read(tree: &Tree) -> BTreeMap<String, String> {
    let mut facts = Facts::new(tree);
    facts.read_all();
    facts.map
}

/// Facts being gathered from a tree.
struct Facts {
    tree: Tree,
    map: BTreeMap<String, String>,
}

impl Facts {
    fn new(tree: &Tree) -> Self {
        Self { tree: tree.clone(), map: BTreeMap::new() }
    }

    fn read_all(&mut self) {
        processor::read(self);
        kernel::read(self);
        memory::read(self);
        network::read(self);
        process::read(self);
        cgroup::read(self);
    }

    /// Records a fact; an empty one is `none`.
    fn put(&mut self, key: &str, value: impl Into<String>) {
        let value = Some(value.into()).filter(|value| !value.is_empty());
        self.map.insert(key.to_owned(), value.unwrap_or_else(|| "none".to_owned()));
    }

    /// Records the outcome of a question to the kernel.
    fn put_answer<T: ToString>(&mut self, key: &str, answer: std::io::Result<T>) {
        let text = answer.map_or_else(|error| format!("unreadable: {error}"), |v| v.to_string());
        self.put(key, text);
    }

    /// Records a file as one line of text, or why there is none.
    fn file(&mut self, key: &str, path: &str) {
        let text = self.tree.text_or_reason(path);
        self.put(key, text);
    }

    /// Records files, each under its key.
    fn files(&mut self, files: &[(&str, &str)]) {
        for (key, path) in files {
            self.file(key, path);
        }
    }

    /// Records sysctls under their own names: `net.core.rmem_max`.
    fn sysctls(&mut self, names: &[&str]) {
        for name in names {
            self.file(name, &sysctl_path(name));
        }
    }

    /// Records the choice of a file that marks it with brackets: `always [madvise] never`.
    fn choice(&mut self, key: &str, path: &str) {
        let text = self.tree.text_or_reason(path);
        self.put(key, bracketed(&text).unwrap_or(&text).to_owned());
    }
}

/// Where /proc keeps a sysctl: `net.core.rmem_max` is proc/sys/net/core/rmem_max.
pub(crate) fn sysctl_path(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
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

#[cfg(test)]
mod tests;
