//! Small machines for tests, as temporary trees of kernel files; and what is recorded of them and of this machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Deref;

use flate2::Compression;
use flate2::write::GzEncoder;
use plumb_base::cpu_list;
use proptest::prelude::*;

use super::*;

/// A temporary tree; it goes when this is dropped.
pub struct MachineFixture {
    dir: tempfile::TempDir,
    tree: KernelFiles,
}

impl Deref for MachineFixture {
    type Target = KernelFiles;

    fn deref(&self) -> &KernelFiles {
        &self.tree
    }
}

/// One CPU of a fixture.
pub struct FixtureCpu<'a> {
    pub id: u32,
    pub socket: i64,
    pub threads: &'a str,
    /// Level, type and `shared_cpu_list` of each cache.
    pub caches: &'a [(u32, &'a str, &'a str)],
}

impl MachineFixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = KernelFiles::at(dir.path());
        Self { dir, tree }
    }

    pub fn with(path: &str, text: &str) -> Self {
        Self::new().file(path, text)
    }

    pub fn file(self, path: &str, text: &str) -> Self {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn online(self, cpus: &[u32]) -> Self {
        self.file("sys/devices/system/cpu/online", &cpu_list::format(cpus))
    }

    pub fn cpu(self, cpu: &FixtureCpu<'_>) -> Self {
        let base = format!("sys/devices/system/cpu/cpu{}", cpu.id);
        let mut fixture = self
            .file(&format!("{base}/topology/physical_package_id"), &format!("{}\n", cpu.socket))
            .file(&format!("{base}/topology/thread_siblings_list"), &format!("{}\n", cpu.threads));
        for (index, (level, kind, shared)) in cpu.caches.iter().enumerate() {
            let cache = format!("{base}/cache/index{index}");
            fixture = fixture
                .file(&format!("{cache}/level"), &format!("{level}\n"))
                .file(&format!("{cache}/type"), &format!("{kind}\n"))
                .file(&format!("{cache}/size"), "32K\n")
                .file(&format!("{cache}/shared_cpu_list"), &format!("{shared}\n"));
        }
        fixture
    }

    /// A virtual machine like many: two cores, one socket, one shared L3.
    pub fn virtual_machine() -> Self {
        let mut fixture = Self::new().online(&[0, 1]);
        for id in 0..2 {
            let own = id.to_string();
            let caches =
                [(1, "Data", own.as_str()), (1, "Instruction", &own), (3, "Unified", "0-1")];
            fixture = fixture.cpu(&FixtureCpu { id, socket: 0, threads: &own, caches: &caches });
        }
        fixture.file("proc/stat", &stat(&[(100, 20, 3), (200, 0, 0)]))
    }
}

/// A /proc/stat with user, softirq and steal ticks for each CPU.
pub fn stat(cpus: &[(u64, u64, u64)]) -> String {
    let mut text = "cpu  0 0 0 0 0 0 0 0 0 0\n".to_owned();
    for (id, (user, softirq, steal)) in cpus.iter().enumerate() {
        writeln!(text, "cpu{id} {user} 0 50 1000 0 7 {softirq} {steal} 0 0").unwrap();
    }
    text + "intr 12345 0 0 1\nctxt 99\nbtime 1700000000\n"
}

/// What is recorded of a tree's files.
fn read(tree: &KernelFiles) -> BTreeMap<String, String> {
    let mut facts = EnvironmentFacts::new(tree);
    facts.read_all();
    facts.map
}

#[test]
fn missing_files_and_directories_give_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sys")).unwrap();
    fs::write(dir.path().join("sys/lines"), " a  b\nc \n").unwrap();
    let tree = KernelFiles::at(dir.path());
    assert_eq!(tree.text("sys/none"), Err(KernelFileError::Absent));
    assert_eq!(tree.text("sys/lines/below"), Err(KernelFileError::Absent));
    assert!(tree.line_or_reason("sys").starts_with("unreadable: "));
    assert_eq!(tree.line_or_reason("sys/lines"), "a b c");
    assert_eq!(tree.number::<u32>("sys/lines"), None);
    assert_eq!(tree.names("sys"), ["lines"]);
}

#[test]
fn keys_are_dotted_and_values_are_single_lines() {
    for (key, value) in capture() {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        assert!(key.chars().all(plain), "{key}");
        assert!(!value.contains('\n') && !value.is_empty(), "{key}: {value:?}");
    }
}

#[test]
fn what_rule_twenty_names_is_recorded() {
    let facts = capture();
    let keys = "cpu.model cpu.microcode cpu.frequency.governor cpu.smt.active cpu.hypervisor \
                cpu.allowed numa.nodes kernel.release kernel.command_line kernel.clocksource kernel.hz \
                kernel.preemption kernel.cpu_accounting net.ipv4.tcp_congestion_control net.core.default_qdisc net.lo.mtu \
                net.lo.gso memory.thp limit.memlock limit.msgqueue process.scheduler process.seccomp \
                libc.version build.rustc build.profile cgroup.version load.average";
    for key in keys.split(' ') {
        assert!(facts.contains_key(key), "{key}");
    }
    assert!(facts.keys().any(|key| key.starts_with("mitigation")));
}

#[test]
fn how_the_kernel_counts_cpu_time_is_read_from_its_configuration() {
    let accounting = |machine: &MachineFixture| read(machine)["kernel.cpu_accounting"].clone();
    let config = "CONFIG_TICK_CPU_ACCOUNTING=y\n# CONFIG_VIRT_CPU_ACCOUNTING_GEN is not set\n\
                  CONFIG_IRQ_TIME_ACCOUNTING=y\n";
    let machine = MachineFixture::with("proc/sys/kernel/osrelease", "6.1\n");
    assert!(accounting(&machine).starts_with("unknown"));
    let machine = machine.file("boot/config-6.1", config);
    assert_eq!(accounting(&machine), "TICK_CPU_ACCOUNTING IRQ_TIME_ACCOUNTING");
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(b"CONFIG_VIRT_CPU_ACCOUNTING_GEN=y\n").unwrap();
    fs::write(machine.path("proc/config.gz"), packed.finish().unwrap()).unwrap();
    assert_eq!(accounting(&machine), "VIRT_CPU_ACCOUNTING_GEN");
}

#[test]
fn neither_host_nor_user_is_named() {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let home = std::env::var("HOME").unwrap_or_default();
    for (key, value) in capture() {
        if host.trim().len() > 3 {
            assert!(!value.contains(host.trim()), "{key}: {value}");
        }
        if home.len() > 5 {
            assert!(!value.contains(&home), "{key}: {value}");
        }
    }
}

#[test]
fn an_empty_machine_is_described_by_what_it_lacks() {
    let facts = read(&MachineFixture::new());
    assert_eq!(facts["cpu.model"], "absent");
    assert_eq!(facts["cpu.frequency.governor"], "absent: no cpufreq");
    assert_eq!(facts["net.core.rmem_max"], "absent");
    assert_eq!(facts["mitigation"], "absent");
    assert_eq!(facts["cgroup.version"], "absent");
}

#[test]
fn an_arm_board_and_a_laptop_are_read_by_the_same_keys() {
    let arm = "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd crc32\n\
               CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n\
               CPU part\t: 0xd08\nCPU revision\t: 3\n\nModel\t: Raspberry Pi 4 Model B\n";
    let facts = read(&MachineFixture::with("proc/cpuinfo", arm));
    assert_eq!(facts["cpu.model"], "Raspberry Pi 4 Model B");
    assert_eq!(facts["cpu.vendor"], "0x41");
    assert_eq!(facts["cpu.flags"], "fp asimd crc32");
    let laptop = "processor\t: 0\nmodel name\t: Laptop CPU @ 2 GHz\ncpu MHz\t\t: 800.012\n\
                  flags\t\t: fpu constant_tsc nonstop_tsc sse\n\n\
                  processor\t: 1\nmodel name\t: Laptop CPU @ 2 GHz\ncpu MHz\t\t: 3400.5\n";
    let policy = "sys/devices/system/cpu/cpufreq/policy0";
    let fixture = MachineFixture::with("proc/cpuinfo", laptop)
        .file(&format!("{policy}/scaling_governor"), "powersave\n")
        .file(&format!("{policy}/scaling_driver"), "intel_pstate\n")
        .file("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
        .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    let facts = read(&fixture);
    assert_eq!(facts["cpu.mhz"], "800–3400");
    assert_eq!(facts["cpu.flags"], "constant_tsc nonstop_tsc");
    assert_eq!(facts["cpu.count"], "2");
    assert_eq!(facts["cpu.frequency.governor"], "powersave");
    assert_eq!(facts["cpu.frequency.turbo"], "on");
    assert_eq!(facts["memory.thp"], "madvise");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn garbage_in_every_file_is_recorded_without_a_panic(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 9),
    ) {
        let paths = "proc/cpuinfo proc/cmdline proc/meminfo proc/self/status \
                     proc/loadavg sys/devices/system/cpu/online etc/os-release \
                     proc/self/cgroup sys/fs/cgroup/cpu.max";
        let mut fixture = MachineFixture::new();
        for (path, bytes) in paths.split(' ').zip(&texts) {
            fixture = fixture.file(path, &String::from_utf8_lossy(bytes));
        }
        prop_assert!(read(&fixture).len() > 50);
    }
}
