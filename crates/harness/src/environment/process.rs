//! Facts about this process: its priority, limits, filters, build, and the load it starts under.
//!
//! Left out: its CPUs' relations (`crate::topology`) and its control group (`super::cgroup`).

use plumb_base::cpu_list;
use plumb_sys::probe::ResourceLimit;
use plumb_sys::{probe, sched};

use super::{EnvironmentFacts, field, noise};

pub(super) fn read(facts: &mut EnvironmentFacts) {
    let status = facts.tree.text("proc/self/status");
    for (key, name) in [
        ("process.seccomp", "Seccomp"),
        ("process.seccomp_filters", "Seccomp_filters"),
        ("process.no_new_privs", "NoNewPrivs"),
        ("process.capabilities", "CapEff"),
        ("process.speculation_store_bypass", "Speculation_Store_Bypass"),
        ("process.speculation_indirect_branch", "SpeculationIndirectBranch"),
        ("process.thp_enabled", "THP_enabled"),
        ("process.memory_nodes", "Mems_allowed_list"),
    ] {
        let value = match &status {
            Ok(text) => field(text, name).unwrap_or("absent").to_owned(),
            Err(missing) => missing.to_string(),
        };
        facts.put(key, value);
    }
    facts.file("process.timer_slack_ns", "proc/self/timerslack_ns");
    build(facts);
    container(facts);
    load(facts);
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
        0 => "other".to_owned(),
        1 => "fifo".to_owned(),
        2 => "rr".to_owned(),
        3 => "batch".to_owned(),
        5 => "idle".to_owned(),
        6 => "deadline".to_owned(),
        7 => "ext".to_owned(),
        other => other.to_string(),
    }
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
    let mut signs = Vec::new();
    if tree.exists(".dockerenv") {
        signs.push("docker");
    }
    if tree.exists("run/.containerenv") {
        signs.push("podman");
    }
    if tree.exists("run/systemd/container") {
        signs.push("systemd");
    }
    if tree.exists("var/run/secrets/kubernetes.io") {
        signs.push("kubernetes");
    }
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
