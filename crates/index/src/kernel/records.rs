//! Records: sorted by key with a merge sort, then counted by name in a hash table with open addressing.

use crate::kernel::{FnvHash, InputGenerator};

const COUNT: usize = 60_000;
const NAMES: u32 = 9_000;
const SLOTS: usize = 1 << 15;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamedRecord {
    key: u64,
    name: [u8; 12],
    amount: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct TableSlot {
    name: [u8; 12],
    count: u32,
    sum: u64,
}

/// The records as they come, and room for the others.
#[derive(Debug)]
pub(super) struct RecordTable {
    records: Vec<NamedRecord>,
    sorted: Vec<NamedRecord>,
    spare: Vec<NamedRecord>,
    slots: Vec<TableSlot>,
}

impl RecordTable {
    pub(super) fn new() -> Self {
        let mut generator = InputGenerator::new(0x05EC_04D5);
        let record = |_| {
            let mut name = *b"customer0000";
            let mut number = generator.below(NAMES);
            for digit in name.iter_mut().rev().take(4) {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
            NamedRecord { key: generator.next(), name, amount: generator.below(10_000) }
        };
        let records: Vec<NamedRecord> = (0..COUNT).map(record).collect();
        Self {
            sorted: records.clone(),
            spare: records.clone(),
            records,
            slots: vec![TableSlot::default(); SLOTS],
        }
    }

    pub(super) fn run(&mut self) -> u64 {
        self.sorted.copy_from_slice(&self.records);
        sort(&mut self.sorted, &mut self.spare);
        self.slots.fill(TableSlot::default());
        for record in &self.sorted {
            count(&mut self.slots, record);
        }
        let mut hash = FnvHash::new();
        for record in self.sorted.iter().step_by(64) {
            hash.number(record.key);
        }
        for slot in self.slots.iter().filter(|slot| slot.count > 0) {
            hash.number(slot.sum ^ u64::from(slot.count));
        }
        hash.finish()
    }
}

/// A merge sort from the bottom up, stable, by key.
fn sort(records: &mut Vec<NamedRecord>, spare: &mut Vec<NamedRecord>) {
    let mut width = 1;
    while width < records.len() {
        for (source, target) in records.chunks(2 * width).zip(spare.chunks_mut(2 * width)) {
            let (left, right) = source.split_at(width.min(source.len()));
            merge(left, right, target);
        }
        std::mem::swap(records, spare);
        width *= 2;
    }
}

fn merge(left: &[NamedRecord], right: &[NamedRecord], target: &mut [NamedRecord]) {
    let (mut i, mut j) = (0, 0);
    for place in target {
        let is_left = j >= right.len() || (i < left.len() && left[i].key <= right[j].key);
        if is_left {
            *place = left[i];
            i += 1;
        } else {
            *place = right[j];
            j += 1;
        }
    }
}

fn count(slots: &mut [TableSlot], record: &NamedRecord) {
    let mut hash = FnvHash::new();
    hash.bytes(&record.name);
    let mut at = hash.finish() as usize % SLOTS;
    while slots[at].count > 0 && slots[at].name != record.name {
        at = (at + 1) % SLOTS;
    }
    let slot = &mut slots[at];
    slot.name = record.name;
    slot.count += 1;
    slot.sum += u64::from(record.amount);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_in_order_and_all_counted() {
        let mut input = RecordTable::new();
        input.run();
        assert!(input.sorted.is_sorted_by_key(|record| record.key));
        let counted: u32 = input.slots.iter().map(|slot| slot.count).sum();
        assert_eq!(counted as usize, COUNT);
    }
}
