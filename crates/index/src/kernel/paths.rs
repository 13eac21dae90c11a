//! Shortest paths from one node of a sparse random graph (Dijkstra 1959) with a binary heap.

use crate::kernel::{FnvHash, InputGenerator};

const NODES: u32 = 1 << 14;
const EDGES_EACH: u32 = 8;
const UNREACHED: u32 = u32::MAX;

/// The graph as an array of edges by node, and room for distances and the heap.
#[derive(Debug)]
pub(super) struct SparseGraph {
    edges: Vec<[u32; 2]>,
    distances: Vec<u32>,
    /// Distance in the upper half, node in the lower.
    heap: Vec<u64>,
}

impl SparseGraph {
    pub(super) fn new() -> Self {
        let mut generator = InputGenerator::new(0x9A75);
        let edge = |_| [generator.below(NODES), 1 + generator.below(1_000)];
        Self {
            edges: (0..NODES * EDGES_EACH).map(edge).collect(),
            distances: vec![UNREACHED; NODES as usize],
            heap: Vec::with_capacity((NODES * EDGES_EACH) as usize),
        }
    }

    pub(super) fn run(&mut self) -> u64 {
        let mut hash = FnvHash::new();
        for source in [0, 1] {
            self.search(source);
            for distance in &self.distances {
                hash.number(u64::from(*distance));
            }
        }
        hash.finish()
    }

    fn search(&mut self, source: u32) {
        self.distances.fill(UNREACHED);
        self.distances[source as usize] = 0;
        self.heap.clear();
        push(&mut self.heap, u64::from(source));
        while let Some(nearest) = pop(&mut self.heap) {
            let (distance, node) = ((nearest >> 32) as u32, nearest as u32 as usize);
            if distance > self.distances[node] {
                continue;
            }
            let first = node * EDGES_EACH as usize;
            for [target, length] in &self.edges[first..first + EDGES_EACH as usize] {
                let through = distance + length;
                if through < self.distances[*target as usize] {
                    self.distances[*target as usize] = through;
                    push(&mut self.heap, u64::from(through) << 32 | u64::from(*target));
                }
            }
        }
    }
}

fn push(heap: &mut Vec<u64>, item: u64) {
    heap.push(item);
    let mut at = heap.len() - 1;
    while at > 0 && heap[at] < heap[(at - 1) / 2] {
        heap.swap(at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

fn pop(heap: &mut Vec<u64>) -> Option<u64> {
    if heap.is_empty() {
        return None;
    }
    let least = heap.swap_remove(0);
    let mut at = 0;
    loop {
        let [left, right] = [2 * at + 1, 2 * at + 2];
        let mut next = at;
        for child in [left, right] {
            if child < heap.len() && heap[child] < heap[next] {
                next = child;
            }
        }
        if next == at {
            return Some(least);
        }
        heap.swap(at, next);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_edge_shortens_a_path_that_was_found() {
        let mut input = SparseGraph::new();
        input.search(0);
        for (index, [target, length]) in input.edges.iter().enumerate() {
            let from = input.distances[index / EDGES_EACH as usize];
            if from != UNREACHED {
                assert!(input.distances[*target as usize] <= from + length);
            }
        }
    }
}
