//! Which CPUs this process may use, how they relate, and which pair stands for each placement.
//!
//! Placement is a factor of every measurement (the same pair of processes can be twenty times
//! slower on the wrong pair of CPUs), so it is chosen here, once, and named.

use std::fmt;

use plumb_base::cpu_list;

use crate::environment::KernelFiles;

/// Where the two sides of a measurement run, relative to one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuPlacement {
    /// Both on one CPU: every message costs a context switch.
    SameCpu,
    /// On two hardware threads of one core.
    Smt,
    /// On two cores that share a cache.
    SameCache,
    /// On two cores of one socket for which the kernel lists no shared cache.
    SameSocket,
    /// On two sockets.
    OtherSocket,
    /// On another CPU, whichever relation is best: same cache, same socket, other socket, SMT.
    OtherCpu,
    /// Wherever the kernel puts them.
    Scheduler,
    /// Each on the first CPU that it may use on a host of its own.
    OwnHost,
}

names!(CpuPlacement {
    SameCpu = "same-cpu",
    Smt = "smt",
    SameCache = "same-cache",
    SameSocket = "same-socket",
    OtherSocket = "other-socket",
    OtherCpu = "other-cpu",
    Scheduler = "scheduler",
    OwnHost = "own-host",
});

impl CpuPlacement {
    /// What [`CpuPlacement::OtherCpu`] stands for, best first.
    const OTHER_CPU: [Self; 4] = [Self::SameCache, Self::SameSocket, Self::OtherSocket, Self::Smt];
}

impl fmt::Display for CpuPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The CPUs of the two sides; `None` leaves a side to the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPair {
    /// The side that times.
    pub local: Option<u32>,
    /// The other side.
    pub peer: Option<u32>,
}

/// A placement that this host does not have, and why: a result, not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("placement {placement} is not possible here: {reason}")]
pub struct PlacementUnavailable {
    /// The placement asked for.
    pub placement: CpuPlacement,
    /// Why there is no such pair of CPUs.
    pub reason: String,
}

/// One CPU that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuInfo {
    id: u32,
    socket: i64,
    threads: Vec<u32>,
    cache: Vec<u32>,
    /// Smallest first: what makes this CPU a worse place to measure.
    preference: (bool, bool, bool, u64, u32),
}

/// The CPUs of this process and how they relate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTopology {
    /// Best place to measure first.
    cpus: Vec<CpuInfo>,
    online: Vec<u32>,
    caches_listed: bool,
}

impl CpuTopology {
    /// The machine plumb runs on, and the CPUs this thread may use.
    ///
    /// Ask before binding to a CPU: afterwards only that one is allowed.
    pub fn machine() -> Self {
        let tree = KernelFiles::machine();
        let allowed = plumb_sys::sched::allowed_cpus()
            .ok()
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| allowed_by_status(&tree));
        Self::read(&tree, &allowed)
    }

    /// The machine below a root, for a process that may use the `allowed` CPUs.
    ///
    /// A machine that tells nothing about itself counts as one socket without caches; with no CPU
    /// in `allowed`, CPU 0 is assumed, since something runs this.
    pub fn read(tree: &KernelFiles, allowed: &[u32]) -> Self {
        let online = tree.text("sys/devices/system/cpu/online").map(|text| cpu_list::parse(&text));
        let online = online.ok().filter(|cpus| !cpus.is_empty());
        let mut ids: Vec<u32> = allowed.to_vec();
        ids.sort_unstable();
        ids.dedup();
        if let Some(online) = &online {
            ids.retain(|cpu| online.contains(cpu));
        }
        if ids.is_empty() {
            ids.push(allowed.first().copied().unwrap_or(0));
        }
        let isolated = tree.text("sys/devices/system/cpu/isolated").unwrap_or_default();
        let isolated = cpu_list::parse(&isolated);
        let efficient = tree.text("sys/devices/cpu_atom/cpus").unwrap_or_default();
        let efficient = cpu_list::parse(&efficient);
        let mut caches_listed = false;
        let mut cpus: Vec<CpuInfo> = ids
            .iter()
            .map(|&id| {
                let cpu = read_cpu(tree, id, &isolated, &efficient);
                caches_listed |= !cpu.cache.is_empty();
                cpu
            })
            .collect();
        cpus.sort_by_key(|cpu| cpu.preference);
        Self { cpus, online: online.unwrap_or(ids), caches_listed }
    }

    /// The CPUs this process may use, ascending.
    pub fn allowed(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.cpus.iter().map(|cpu| cpu.id).collect();
        ids.sort_unstable();
        ids
    }

    /// The CPUs that are switched on, ascending, whether this process may use them or not.
    pub fn online(&self) -> &[u32] {
        &self.online
    }

    /// The placements that exist here, [`CpuPlacement::OtherCpu`] left out as it is one of the others, and
    /// [`CpuPlacement::OwnHost`], which needs another host.
    pub fn placements(&self) -> Vec<CpuPlacement> {
        let here =
            |place: &CpuPlacement| !matches!(place, CpuPlacement::OtherCpu | CpuPlacement::OwnHost);
        let real = CpuPlacement::ALL.into_iter().filter(here);
        real.filter(|placement| self.pair(*placement).is_ok()).collect()
    }

    /// The placement that a name stands for here: `other-cpu` becomes the best relation there is.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn resolve(&self, placement: CpuPlacement) -> Result<CpuPlacement, PlacementUnavailable> {
        self.find(placement).map(|(found, _)| found)
    }

    /// The pair of CPUs that stands for a placement; the same one whenever it is asked for.
    ///
    /// The timing side stays on the same CPU for as many placements as possible. CPU 0 and its
    /// SMT siblings, which take most interrupts, come last; isolated CPUs come first.
    ///
    /// # Errors
    /// Says why there is no such pair.
    pub fn pair(&self, placement: CpuPlacement) -> Result<CpuPair, PlacementUnavailable> {
        self.find(placement).map(|(_, pair)| pair)
    }

    fn find(
        &self,
        placement: CpuPlacement,
    ) -> Result<(CpuPlacement, CpuPair), PlacementUnavailable> {
        let candidates: &[CpuPlacement] = match placement {
            CpuPlacement::OtherCpu => &CpuPlacement::OTHER_CPU,
            _ => &[placement],
        };
        let mut found =
            candidates.iter().filter_map(|&candidate| Some((candidate, self.choose(candidate)?)));
        found
            .next()
            .ok_or_else(|| PlacementUnavailable { placement, reason: self.reason(placement) })
    }

    /// The choice in words, for provenance: `CPU 1 and CPU 0, same-cache`.
    pub fn describe(&self, placement: CpuPlacement) -> String {
        match self.find(placement) {
            Ok((real, CpuPair { local: Some(local), peer: Some(peer) })) if local != peer => {
                format!("CPU {local} and CPU {peer}, {real}")
            }
            Ok((real, CpuPair { local: Some(local), .. })) => format!("CPU {local}, {real}"),
            Ok((real, _)) => format!("CPUs {}, {real}", cpu_list::format(&self.allowed())),
            Err(unavailable) => unavailable.reason,
        }
    }

    fn choose(&self, placement: CpuPlacement) -> Option<CpuPair> {
        match placement {
            CpuPlacement::Scheduler => Some(CpuPair::default()),
            CpuPlacement::SameCpu | CpuPlacement::OwnHost => self.cpus.first().map(|cpu| {
                // The CPU on the other host is chosen there.
                let peer = (placement == CpuPlacement::SameCpu).then_some(cpu.id);
                CpuPair { local: Some(cpu.id), peer }
            }),
            _ => self.cpus.iter().find_map(|local| {
                let peer = self.cpus.iter().find(|peer| relation(local, peer) == placement)?;
                Some(CpuPair { local: Some(local.id), peer: Some(peer.id) })
            }),
        }
    }

    fn reason(&self, placement: CpuPlacement) -> String {
        let allowed = self.allowed();
        if allowed.len() == 1 && self.online.len() > 1 {
            return format!(
                "this process may use only CPU {} of the {} online: its affinity or its cpuset \
                 forbids the others (see taskset -p, or the container's --cpuset-cpus)",
                allowed[0],
                self.online.len()
            );
        }
        if self.online.len() <= 1 {
            return "the machine has one CPU online".to_owned();
        }
        let within = if allowed.len() < self.online.len() {
            format!(" among the CPUs it may use ({})", cpu_list::format(&allowed))
        } else {
            String::new()
        };
        match placement {
            CpuPlacement::Smt => {
                format!("no core has two hardware threads{within}: SMT is off or not there")
            }
            CpuPlacement::SameCache if !self.caches_listed => {
                "the kernel lists no caches for these CPUs, so none is known to be shared; \
                 same-socket is the nearest"
                    .to_owned()
            }
            CpuPlacement::SameCache => format!("no two cores share a cache{within}"),
            CpuPlacement::SameSocket => {
                format!("every two cores of one socket share a cache{within}: use same-cache")
            }
            CpuPlacement::OtherSocket => format!("there is one socket{within}"),
            CpuPlacement::SameCpu
            | CpuPlacement::OtherCpu
            | CpuPlacement::Scheduler
            | CpuPlacement::OwnHost => {
                format!("no such pair of CPUs{within}")
            }
        }
    }
}

/// Reads what /sys says about one CPU; nothing is required to be there.
fn read_cpu(tree: &KernelFiles, id: u32, isolated: &[u32], efficient: &[u32]) -> CpuInfo {
    let base = format!("sys/devices/system/cpu/cpu{id}");
    let list = |name: &str| {
        tree.text(&format!("{base}/topology/{name}")).map(|text| cpu_list::parse(&text)).ok()
    };
    // `core_cpus_list` is the newer name of `thread_siblings_list` (cputopology.rst).
    let threads = list("core_cpus_list").or_else(|| list("thread_siblings_list"));
    let threads = threads.filter(|cpus| cpus.contains(&id)).unwrap_or_else(|| vec![id]);
    // Some arm64 firmware gives −1 for "unknown", the same for every CPU: one socket.
    let socket = tree.number(&format!("{base}/topology/physical_package_id")).unwrap_or(-1);
    let capacity: u64 = tree.number(&format!("{base}/cpu_capacity")).unwrap_or(1024);
    CpuInfo {
        id,
        socket,
        cache: widest_cache(tree, &base, id),
        preference: (
            !isolated.contains(&id),
            efficient.contains(&id),
            threads.contains(&0),
            u64::MAX - capacity,
            id,
        ),
        threads,
    }
}

/// The CPUs with which `id` shares its widest data cache, itself included; empty when none is listed.
fn widest_cache(tree: &KernelFiles, base: &str, id: u32) -> Vec<u32> {
    tree.names(&format!("{base}/cache"))
        .into_iter()
        .filter(|name| name.starts_with("index"))
        .filter(|name| {
            tree.text(&format!("{base}/cache/{name}/type")).as_deref() != Ok("Instruction")
        })
        .filter_map(|name| tree.text(&format!("{base}/cache/{name}/shared_cpu_list")).ok())
        .map(|text| cpu_list::parse(&text))
        .filter(|cpus| cpus.contains(&id))
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

fn relation(local: &CpuInfo, peer: &CpuInfo) -> CpuPlacement {
    if local.id == peer.id {
        CpuPlacement::SameCpu
    } else if local.threads.contains(&peer.id) {
        CpuPlacement::Smt
    } else if local.cache.contains(&peer.id) {
        CpuPlacement::SameCache
    } else if local.socket == peer.socket {
        CpuPlacement::SameSocket
    } else {
        CpuPlacement::OtherSocket
    }
}

/// The allowed CPUs by another way, for kernels with more CPUs than a `cpu_set_t` holds.
fn allowed_by_status(tree: &KernelFiles) -> Vec<u32> {
    let status = tree.text("proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cpu_list::parse(line.unwrap_or_default())
}

#[cfg(test)]
mod tests;
