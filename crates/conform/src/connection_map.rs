//! Numbers of a script and those of the run: initial sequence numbers, ports and timestamps differ.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A connection of the script, and what its numbers are in the run.
#[derive(Clone, Debug)]
pub struct ConnectionMap {
    /// The stack's end.
    pub local: SocketAddr,
    /// The script's end.
    pub remote: SocketAddr,
    /// The stack's initial sequence number, in the script and in the run.
    pub local_isn: (u32, u32),
    /// The script's, which is the same in both.
    pub remote_isn: u32,
    /// Whether a SYN has told [`ConnectionMap::remote_isn`].
    pub is_remote_known: bool,
    timestamps: BTreeMap<u32, u32>,
    first_timestamp: Option<(u32, u32)>,
}

impl ConnectionMap {
    /// Between these ends, with initial numbers of 0 as yet.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            local_isn: (0, 0),
            remote_isn: 0,
            is_remote_known: false,
            timestamps: BTreeMap::new(),
            first_timestamp: None,
        }
    }

    /// What to add to the stack's numbers in the script for those of the run. In a SYN they are not relative.
    pub fn local_offset(&self, is_syn: bool) -> u32 {
        let (script, run) = self.local_isn;
        if is_syn { run.wrapping_sub(script) } else { run }
    }

    /// The same for the script's own numbers.
    pub fn remote_offset(&self, is_syn: bool) -> u32 {
        if is_syn { 0 } else { self.remote_isn }
    }

    /// The stack sent the timestamp `run` where the script has `script`; what the script would have if its clock ran as
    /// the stack's does.
    pub fn on_timestamp(&mut self, script: u32, run: u32) -> u32 {
        self.timestamps.insert(script, run);
        let (first_script, first_run) = *self.first_timestamp.get_or_insert((script, run));
        first_script.wrapping_add(run.wrapping_sub(first_run))
    }

    /// The timestamp of the run that the script's echo means; with `infers`, also one that was never seen.
    pub fn echo(&self, script: u32, infers: bool) -> Option<u32> {
        let inferred = self.first_timestamp.filter(|_| infers).map(|(first_script, first_run)| {
            script.wrapping_sub(first_script).wrapping_add(first_run)
        });
        self.timestamps.get(&script).copied().or(inferred)
    }
}
