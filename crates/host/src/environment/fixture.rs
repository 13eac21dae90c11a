//! Small machines for tests: a temporary tree with the kernel files that a test names.
//!
//! Only built for tests. Left out: anything a test does not write down itself.

use std::fmt::Write;

use plumb_base::cpu_list;

use super::tree::Tree;

/// A temporary tree; it goes when this is dropped.
pub struct Fixture {
    dir: tempfile::TempDir,
}

/// One CPU of a fixture.
pub struct FixtureCpu<'a> {
    pub id: u32,
    pub socket: i64,
    pub threads: &'a str,
    /// Level, type and `shared_cpu_list` of each cache.
    pub caches: &'a [(u32, &'a str, &'a str)],
}

impl Fixture {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn file(self, path: &str, text: &str) -> Self {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
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

    pub fn tree(&self) -> Tree {
        Tree::at(self.dir.path())
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
