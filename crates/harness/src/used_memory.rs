//! Memory that this process used in a stretch of time, by the accessed bits of its pages.

use std::fs;

/// Bytes, in whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedMemory {
    /// Code and constants of programs and libraries, as mapped from their files.
    pub code: u64,
    /// Variables, stacks and heap.
    pub data: u64,
}

/// What `work` uses (proc_pid_clear_refs(5), `Referenced` of proc_pid_smaps(5)); `None` where the kernel does not say.
///
/// # Errors
/// `work` fails.
pub fn used_by<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Option<UsedMemory>, E> {
    let is_cleared = fs::write("/proc/self/clear_refs", "1").is_ok();
    flush_tlb();
    work()?;
    let smaps = fs::read_to_string("/proc/self/smaps").ok().filter(|_| is_cleared);
    Ok(smaps.map(|text| parse_smaps(&text)))
}

/// Pages that are in a TLB would be used unseen. A mapping that ends with more pages between its first and its last than the kernel
/// flushes one by one (some 30) empties those of all CPUs that this process runs on.
fn flush_tlb() {
    // More than malloc keeps (malloc(3), M_MMAP_THRESHOLD).
    let mut mapping = vec![0_u8; 64 << 20];
    for end in [0, mapping.len() - 1] {
        mapping[end] = 1;
    }
    std::hint::black_box(&mapping);
}

fn parse_smaps(text: &str) -> UsedMemory {
    let mut used = UsedMemory::default();
    let mut is_file = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            // Addresses, permissions, offset, device, inode, and perhaps a path; what was written to of a file is this process's own.
            let permissions = words.next().unwrap_or_default();
            let path = words.nth(3).unwrap_or_default();
            is_file = path.starts_with('/') && !permissions.contains('w');
        } else if first == "Referenced:" {
            let kib: u64 = words.next().and_then(|number| number.parse().ok()).unwrap_or_default();
            *(if is_file { &mut used.code } else { &mut used.data }) += kib << 10;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_work_touches_is_used_and_what_it_leaves_alone_is_not() {
        // More than other tests use, in other threads of this process.
        let mut memory = vec![1_u8; 64 << 20];
        // A kernel without CONFIG_PROC_PAGE_MONITOR does not say.
        let Some(idle) = used_by(|| Ok::<_, ()>(())).unwrap() else { return };
        let busy = used_by(|| {
            memory.iter_mut().step_by(4_096).for_each(|byte| *byte += 1);
            Ok::<_, ()>(())
        });
        let busy = busy.unwrap().unwrap();
        assert!(busy.data >= 63 << 20 && idle.data < 32 << 20, "{idle:?} and {busy:?}");
        assert!(idle.code > 0, "{idle:?}");
        assert_eq!(memory.first(), Some(&2), "the work was done");
    }

    #[test]
    fn code_is_what_is_mapped_from_files_and_not_written_to() {
        let text = "55-56 r-xp 0 fe:00 247026   /usr/bin/cat\nRss:   8 kB\nReferenced:   8 kB\n\
                    57-58 rw-p 0 fe:00 247026   /usr/bin/cat\nReferenced:   4 kB\n\
                    60-61 rw-p 0 00:00 0   [heap]\nReferenced:   16 kB\nVmFlags: rd wr\n\
                    62-63 r--p 0 fe:00 9   /usr/lib/libc.so.6\nReferenced:   32 kB\n";
        assert_eq!(parse_smaps(text), UsedMemory { code: 40 << 10, data: 20 << 10 });
    }
}
