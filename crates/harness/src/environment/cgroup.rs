//! The control group of this process, as far as it limits its CPU and memory.
//!
//! Version 1, version 2 and both at once; the tightest limit from here up to the root counts, as
//! the kernel applies them all. Left out: the group's path, which can name users and machines.

use plumb_base::cpu_list;

use super::EnvironmentFacts;
use crate::environment::KernelFiles;

const MOUNT: &str = "sys/fs/cgroup";

/// What limits this process; `None` is no limit, or none that can be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlGroup {
    /// 1 or 2; absent without control groups.
    pub version: Option<u8>,
    /// CPUs' worth of time a second: 1.5 is one and a half.
    pub cpu_quota: Option<f64>,
    /// The period over which the quota is counted, in microseconds.
    pub cpu_period_us: Option<u64>,
    /// Share against other groups (cpu.weight, or cpu.shares in version 1).
    pub cpu_weight: Option<u64>,
    /// How often the group was throttled at its quota since it began.
    pub throttled: Option<u64>,
    /// CPUs the group may use.
    pub cpuset: Option<Vec<u32>>,
    /// Bytes of memory the group may use.
    pub memory_max: Option<u64>,
}

/// Reads the control group of this process.
pub fn control_group(tree: &KernelFiles) -> ControlGroup {
    let text = tree.text("proc/self/cgroup").unwrap_or_default();
    // A line is `id:controllers:path`; version 2 has id 0 and no controllers (cgroups(7)).
    let group = |controller: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
        })
    };
    if let Some(cpu) = group("cpu") {
        return first_version(tree, &cpu, group("cpuset"), group("memory"));
    }
    match group("") {
        Some(path) => second_version(tree, &path),
        None => ControlGroup::default(),
    }
}

pub(super) fn read(facts: &mut EnvironmentFacts) {
    let group = control_group(&facts.tree);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
    let version = group.version.map_or_else(|| "absent".to_owned(), |n| n.to_string());
    facts.put("cgroup.version", version);
    facts.put("cgroup.cpu.quota", or_none(group.cpu_quota.map(|cpus| format!("{cpus} CPUs"))));
    facts.put("cgroup.cpu.period_us", or_none(group.cpu_period_us.map(|us| us.to_string())));
    facts.put("cgroup.cpu.weight", or_none(group.cpu_weight.map(|n| n.to_string())));
    facts.put("cgroup.cpu.throttled", or_none(group.throttled.map(|n| n.to_string())));
    let cpuset = group.cpuset.map(|cpus| cpu_list::format(&cpus));
    facts.put("cgroup.cpuset", or_none(cpuset));
    facts.put("cgroup.memory.max", or_none(group.memory_max.map(|bytes| bytes.to_string())));
}

fn first_version(
    tree: &KernelFiles,
    cpu: &str,
    cpuset: Option<String>,
    memory: Option<String>,
) -> ControlGroup {
    let cpu_dirs = lineage(tree, &format!("{MOUNT}/cpu"), cpu);
    let quota = cpu_dirs
        .iter()
        .filter_map(|dir| {
            // −1 is no quota.
            let quota: u64 = tree.number(&format!("{dir}/cpu.cfs_quota_us"))?;
            let period: u64 = tree.number(&format!("{dir}/cpu.cfs_period_us"))?;
            (period > 0).then_some((quota as f64 / period as f64, period))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let own = |name: &str| cpu_dirs.first().map(|dir| format!("{dir}/{name}"));
    let cpuset = cpuset.and_then(|path| {
        lineage(tree, &format!("{MOUNT}/cpuset"), &path).into_iter().find_map(|dir| {
            let text = tree.text(&format!("{dir}/cpuset.effective_cpus"));
            list(&text.or_else(|_| tree.text(&format!("{dir}/cpuset.cpus"))).ok()?)
        })
    });
    let memory_max = memory.and_then(|path| {
        lineage(tree, &format!("{MOUNT}/memory"), &path)
            .iter()
            .filter_map(|dir| tree.number(&format!("{dir}/memory.limit_in_bytes")))
            // The largest page-aligned number stands for no limit.
            .filter(|bytes| *bytes < 1 << 62)
            .min()
    });
    ControlGroup {
        version: Some(1),
        cpu_quota: quota.map(|(cpus, _)| cpus),
        cpu_period_us: quota.map(|(_, period)| period),
        cpu_weight: own("cpu.shares").and_then(|path| tree.number(&path)),
        throttled: own("cpu.stat").and_then(|path| throttled(tree, &path)),
        cpuset,
        memory_max,
    }
}

fn second_version(tree: &KernelFiles, path: &str) -> ControlGroup {
    // A hybrid host mounts version 2 below `unified`.
    let mount = if tree.exists(&format!("{MOUNT}/cgroup.controllers")) {
        MOUNT.to_owned()
    } else {
        format!("{MOUNT}/unified")
    };
    let dirs = lineage(tree, &mount, path);
    let quota = dirs
        .iter()
        .filter_map(|dir| quota(&tree.text(&format!("{dir}/cpu.max")).ok()?))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let own = |name: &str| dirs.first().map(|dir| format!("{dir}/{name}"));
    ControlGroup {
        version: Some(2),
        cpu_quota: quota.map(|(cpus, _)| cpus),
        cpu_period_us: quota.map(|(_, period)| period),
        cpu_weight: own("cpu.weight").and_then(|path| tree.number(&path)),
        throttled: own("cpu.stat").and_then(|path| throttled(tree, &path)),
        cpuset: dirs
            .iter()
            .find_map(|dir| list(&tree.text(&format!("{dir}/cpuset.cpus.effective")).ok()?)),
        memory_max: dirs.iter().filter_map(|dir| tree.number(&format!("{dir}/memory.max"))).min(),
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

/// CPUs and period of a cpu.max: `150000 100000` is 1.5 CPUs, `max 100000` is no limit.
fn quota(text: &str) -> Option<(f64, u64)> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (period > 0).then_some((quota as f64 / period as f64, period))
}

fn throttled(tree: &KernelFiles, path: &str) -> Option<u64> {
    let text = tree.text(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

fn list(text: &str) -> Option<Vec<u32>> {
    let cpus = cpu_list::parse(text);
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::MachineFixture;

    #[test]
    fn the_tightest_quota_up_to_the_root_counts() {
        let fixture = MachineFixture::new()
            .file("proc/self/cgroup", "0::/shop/worker\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu memory")
            .file("sys/fs/cgroup/shop/cpu.max", "150000 100000\n")
            .file("sys/fs/cgroup/shop/memory.max", "1073741824\n")
            .file("sys/fs/cgroup/shop/worker/cpu.max", "200000 100000\n")
            .file("sys/fs/cgroup/shop/worker/memory.max", "max\n")
            .file("sys/fs/cgroup/shop/worker/cpu.stat", "usage_usec 5\nnr_throttled 7\n")
            .file("sys/fs/cgroup/shop/worker/cpuset.cpus.effective", "2-3\n");
        let group = control_group(&fixture.tree());
        assert_eq!(group.version, Some(2));
        assert_eq!((group.cpu_quota, group.cpu_period_us), (Some(1.5), Some(100_000)));
        assert_eq!(group.throttled, Some(7));
        assert_eq!(group.cpuset, Some(vec![2, 3]));
        assert_eq!(group.memory_max, Some(1 << 30));
    }

    #[test]
    fn version_one_is_read_when_it_holds_the_cpu_controller() {
        let fixture = MachineFixture::new()
            .file("proc/self/cgroup", "3:cpuset:/\n1:cpu,cpuacct:/job\n0::/\n")
            .file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000")
            .file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
            .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "90000")
            .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
            .file("sys/fs/cgroup/cpuset/cpuset.cpus", "0-1");
        let group = control_group(&fixture.tree());
        assert_eq!(group.version, Some(1));
        assert_eq!(group.cpu_quota, Some(0.5));
        assert_eq!(group.cpuset, Some(vec![0, 1]));
        assert_eq!(group.memory_max, None);
    }

    #[test]
    fn a_path_of_the_host_falls_back_to_what_is_mounted() {
        let fixture = MachineFixture::new()
            .file("proc/self/cgroup", "0::/../../kubepods/pod-1\n")
            .file("sys/fs/cgroup/cgroup.controllers", "cpu")
            .file("sys/fs/cgroup/cpu.max", "20000 100000");
        assert_eq!(control_group(&fixture.tree()).cpu_quota, Some(0.2));
    }

    #[test]
    fn without_control_groups_there_is_no_limit() {
        assert_eq!(control_group(&MachineFixture::new().tree()), ControlGroup::default());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
        #[test]
        fn garbage_is_no_limit_and_no_panic(
            line in "[0-9:/a-z,.]{0,30}",
            max in "[0-9a-z \\-]{0,20}",
        ) {
            let fixture = MachineFixture::new()
                .file("proc/self/cgroup", &line)
                .file("sys/fs/cgroup/cgroup.controllers", "cpu")
                .file("sys/fs/cgroup/cpu.max", &max);
            let quota = control_group(&fixture.tree()).cpu_quota;
            proptest::prop_assert!(quota.is_none_or(|cpus| cpus >= 0.0));
        }
    }
}
