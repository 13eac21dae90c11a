//! Facts about this process: its priority, limits, filters, build, the load it starts under, and its control group, as far
//! as that limits its CPU and memory.
//!
//! Of version 1, version 2 and both at once the tightest limit from here up to the root counts, as the kernel applies
//! them all. The group's path is not recorded: it can name users and machines.

use plumb_base::cpu_list;
use plumb_sys::probe::ResourceLimit;
use plumb_sys::{probe, sched};

use super::{EnvironmentFacts, KernelFiles, noise};

pub(super) fn read(facts: &mut EnvironmentFacts) {
    let status = facts.tree.text("proc/self/status");
    facts.fields(
        &status,
        &[
            ("process.seccomp", "Seccomp"),
            ("process.seccomp_filters", "Seccomp_filters"),
            ("process.no_new_privs", "NoNewPrivs"),
            ("process.capabilities", "CapEff"),
            ("process.speculation_store_bypass", "Speculation_Store_Bypass"),
            ("process.speculation_indirect_branch", "SpeculationIndirectBranch"),
            ("process.thp_enabled", "THP_enabled"),
            ("process.memory_nodes", "Mems_allowed_list"),
        ],
    );
    facts.file("process.timer_slack_ns", "proc/self/timerslack_ns");
    build(facts);
    container(facts);
    load(facts);
    read_control_group(facts);
}

/// Facts that only calls can tell.
pub(super) fn probe(facts: &mut EnvironmentFacts) {
    let allowed = sched::allowed_cpus().map(|cpus| cpu_list::format(&cpus));
    facts.put_answer("cpu.allowed", allowed);
    facts.put_answer("process.nice", sched::nice());
    facts.put_answer("process.scheduler", probe::scheduler_policy().map(policy_name));
    for (key, which) in [
        ("limit.memlock", ResourceLimit::Memlock),
        ("limit.msgqueue", ResourceLimit::Msgqueue),
        ("limit.nofile", ResourceLimit::Nofile),
        ("limit.sigpending", ResourceLimit::Sigpending),
        ("limit.rtprio", ResourceLimit::Rtprio),
        ("limit.nice", ResourceLimit::Nice),
    ] {
        let shown = |n: Option<u64>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
        let (soft, hard) = probe::limit(which);
        let most = if soft == hard { String::new() } else { format!(", at most {}", shown(hard)) };
        facts.put(key, shown(soft) + &most);
    }
    let (name, version) = probe::libc_version();
    let version = version.map_or_else(String::new, |text| format!(" {}", text.to_string_lossy()));
    facts.put("libc.version", format!("{name}{version}"));
}

/// The names of sched(7); the kernel sets bit 30 for "reset on fork".
fn policy_name(policy: i32) -> String {
    match policy & !(1 << 30) {
        0 => "other",
        1 => "fifo",
        2 => "rr",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        7 => "ext",
        other => return other.to_string(),
    }
    .to_owned()
}

fn build(facts: &mut EnvironmentFacts) {
    facts.put("build.rustc", env!("PLUMB_BUILD_RUSTC"));
    facts.put("build.target", env!("PLUMB_BUILD_TARGET"));
    facts.put("build.profile", env!("PLUMB_BUILD_PROFILE"));
    facts.put("build.opt_level", env!("PLUMB_BUILD_OPT_LEVEL"));
    facts.put("build.flags", env!("PLUMB_BUILD_FLAGS"));
    facts.put("build.assertions", if cfg!(debug_assertions) { "on" } else { "off" });
}

/// Signs that containers leave; none of them is certain.
fn container(facts: &mut EnvironmentFacts) {
    let tree = &facts.tree;
    let files = [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        ("run/systemd/container", "systemd"),
        ("var/run/secrets/kubernetes.io", "kubernetes"),
    ];
    let left = files.into_iter().filter(|(path, _)| tree.exists(path));
    let mut signs: Vec<&str> = left.map(|(_, sign)| sign).collect();
    if tree.text("proc/self/mounts").is_ok_and(|text| {
        text.lines().any(|line| {
            let mut fields = line.split(' ');
            let (_, at, kind) = (fields.next(), fields.next(), fields.next());
            at == Some("/") && kind == Some("overlay")
        })
    }) {
        signs.push("overlay root");
    }
    let text = if signs.is_empty() { "no sign".to_owned() } else { signs.join(", ") };
    facts.put("container.signs", text);
}

fn load(facts: &mut EnvironmentFacts) {
    let load = facts.tree.line_or_reason("proc/loadavg");
    // The last field is a process id and says nothing.
    let fields: Vec<&str> = load.split(' ').take(4).collect();
    facts.put("load.average", fields.get(..3).map_or(load.clone(), |three| three.join(" ")));
    facts.put("load.tasks", fields.get(3).copied().unwrap_or("absent"));
    for resource in ["cpu", "memory", "io"] {
        let text = noise::pressure(&facts.tree, resource)
            .map_or_else(|| "absent".to_owned(), |read| format!("{:.2} %", read.some * 100.0));
        facts.put(&format!("load.pressure.{resource}"), text);
    }
}

const MOUNT: &str = "sys/fs/cgroup";

/// What limits this process; `None` is no limit, or none that can be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ControlGroup {
    /// 1 or 2; absent without control groups.
    pub(crate) version: Option<u8>,
    /// CPUs' worth of time a second: 1.5 is one and a half.
    pub(crate) cpu_quota: Option<f64>,
    /// The period over which the quota is counted, in microseconds.
    pub(crate) cpu_period_us: Option<u64>,
    /// Share against other groups (cpu.weight, or cpu.shares in version 1).
    pub(crate) cpu_weight: Option<u64>,
    /// How often the group was throttled at its quota since it began.
    pub(crate) throttled: Option<u64>,
    /// CPUs the group may use.
    pub(crate) cpuset: Option<Vec<u32>>,
    /// Bytes of memory the group may use.
    pub(crate) memory_max: Option<u64>,
}

/// Reads the control group of this process.
pub(crate) fn control_group(tree: &KernelFiles) -> ControlGroup {
    let text = tree.text("proc/self/cgroup").unwrap_or_default();
    // A line is `id:controllers:path`; version 2 has id 0 and no controllers (cgroups(7)).
    let group = |controller: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
        })
    };
    let (version, cpu, cpuset, memory) = match (group("cpu"), group("")) {
        (Some(path), _) => {
            let dirs = |name: &str, path: Option<String>| {
                path.map_or_else(Vec::new, |path| lineage(tree, &format!("{MOUNT}/{name}"), &path))
            };
            let (cpuset, memory) = (group("cpuset"), group("memory"));
            (1, dirs("cpu", Some(path)), dirs("cpuset", cpuset), dirs("memory", memory))
        }
        (None, Some(path)) => {
            // A hybrid host mounts version 2 below `unified`.
            let is_only = tree.exists(&format!("{MOUNT}/cgroup.controllers"));
            let mount = if is_only { MOUNT.to_owned() } else { format!("{MOUNT}/unified") };
            let dirs = lineage(tree, &mount, &path);
            (2, dirs.clone(), dirs.clone(), dirs)
        }
        (None, None) => return ControlGroup::default(),
    };
    let file =
        |first: &'static str, second: &'static str| if version == 1 { first } else { second };
    let quotas = cpu.iter().filter_map(|dir| {
        if version == 2 {
            return quota(&tree.text(&format!("{dir}/cpu.max")).ok()?);
        }
        let read = |name: &str| tree.text(&format!("{dir}/cpu.cfs_{name}_us")).ok();
        quota(&format!("{} {}", read("quota")?, read("period")?))
    });
    let quota = quotas.min_by(|a, b| a.0.total_cmp(&b.0));
    let own = |name: &str| cpu.first().map(|dir| format!("{dir}/{name}"));
    let memory_file = file("memory.limit_in_bytes", "memory.max");
    let memory_limits =
        memory.iter().filter_map(|dir| tree.number(&format!("{dir}/{memory_file}")));
    ControlGroup {
        version: Some(version),
        cpu_quota: quota.map(|(cpus, _)| cpus),
        cpu_period_us: quota.map(|(_, period)| period),
        cpu_weight: own(file("cpu.shares", "cpu.weight")).and_then(|path| tree.number(&path)),
        throttled: own("cpu.stat").and_then(|path| throttled(tree, &path)),
        cpuset: cpuset.iter().find_map(|dir| {
            let read = |name: &str| tree.text(&format!("{dir}/{name}"));
            let text = read(file("cpuset.effective_cpus", "cpuset.cpus.effective"));
            let cpus = cpu_list::parse(&text.or_else(|_| read("cpuset.cpus")).ok()?);
            (!cpus.is_empty()).then_some(cpus)
        }),
        // The largest page-aligned number of version 1 stands for no limit.
        memory_max: memory_limits.filter(|bytes| *bytes < 1 << 62).min(),
    }
}

fn read_control_group(facts: &mut EnvironmentFacts) {
    let group = control_group(&facts.tree);
    let version = group.version.map_or_else(|| "absent".to_owned(), |n| n.to_string());
    facts.put("cgroup.version", version);
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    for (key, value) in [
        ("cgroup.cpu.quota", group.cpu_quota.map(|cpus| format!("{cpus} CPUs"))),
        ("cgroup.cpu.period_us", text(group.cpu_period_us)),
        ("cgroup.cpu.weight", text(group.cpu_weight)),
        ("cgroup.cpu.throttled", text(group.throttled)),
        ("cgroup.cpuset", group.cpuset.map(|cpus| cpu_list::format(&cpus))),
        ("cgroup.memory.max", text(group.memory_max)),
    ] {
        // An empty fact is recorded as `none`.
        facts.put(key, value.unwrap_or_default());
    }
}

/// The directories of a group and of all above it, its own first.
///
/// In a container the path may be one of the host's that is not mounted here; then the mount's
/// root is the group itself.
fn lineage(tree: &KernelFiles, mount: &str, path: &str) -> Vec<String> {
    let mut parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    let mut dirs = Vec::new();
    loop {
        let dir = std::iter::once(mount).chain(parts.iter().copied()).collect::<Vec<_>>().join("/");
        if tree.exists(&dir) {
            dirs.push(dir);
        }
        if parts.pop().is_none() {
            return dirs;
        }
    }
}

/// CPUs and period of a cpu.max: `150000 100000` is 1.5 CPUs, `max 100000` and a quota of −1 are no limit.
fn quota(text: &str) -> Option<(f64, u64)> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (period > 0).then_some((quota as f64 / period as f64, period))
}

fn throttled(tree: &KernelFiles, path: &str) -> Option<u64> {
    let text = tree.text(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::MachineFixture;

    #[test]
    fn the_tightest_quota_up_to_the_root_counts() {
        let fixture = MachineFixture::with("proc/self/cgroup", "0::/shop/worker\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu memory")
            .file("sys/fs/cgroup/shop/cpu.max", "150000 100000\n")
            .file("sys/fs/cgroup/shop/memory.max", "1073741824\n")
            .file("sys/fs/cgroup/shop/worker/cpu.max", "200000 100000\n")
            .file("sys/fs/cgroup/shop/worker/memory.max", "max\n")
            .file("sys/fs/cgroup/shop/worker/cpu.stat", "usage_usec 5\nnr_throttled 7\n")
            .file("sys/fs/cgroup/shop/worker/cpuset.cpus.effective", "2-3\n");
        let group = control_group(&fixture);
        assert_eq!(group.version, Some(2));
        assert_eq!((group.cpu_quota, group.cpu_period_us), (Some(1.5), Some(100_000)));
        assert_eq!(group.throttled, Some(7));
        assert_eq!(group.cpuset, Some(vec![2, 3]));
        assert_eq!(group.memory_max, Some(1 << 30));
    }

    #[test]
    fn version_one_is_read_when_it_holds_the_cpu_controller() {
        let fixture =
            MachineFixture::with("proc/self/cgroup", "3:cpuset:/\n1:cpu,cpuacct:/job\n0::/\n")
                .file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
                .file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
                .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "90000")
                .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
                .file("sys/fs/cgroup/cpuset/cpuset.cpus", "0-1");
        let group = control_group(&fixture);
        assert_eq!(group.version, Some(1));
        assert_eq!(group.cpu_quota, Some(0.5));
        assert_eq!(group.cpuset, Some(vec![0, 1]));
        assert_eq!(group.memory_max, None);
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_what_is_mounted() {
        let fixture = MachineFixture::with("proc/self/cgroup", "0::/../../kubepods/pod-1\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu")
            .file("sys/fs/cgroup/cpu.max", "20000 100000");
        assert_eq!(control_group(&fixture).cpu_quota, Some(0.2));
    }

    #[test]
    fn without_control_groups_there_is_no_limit() {
        assert_eq!(control_group(&MachineFixture::new()), ControlGroup::default());
    }
}
