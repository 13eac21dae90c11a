//! A register machine that interprets byte code: a sieve, and sums over what it left.

use crate::kernel::FnvHash;

const CELLS: usize = 1 << 16;

/// An instruction: what, and three small numbers.
#[derive(Clone, Copy, Debug)]
enum MachineCode {
    /// `r[a] = number`
    Set(u8, u32),
    /// `r[a] = r[b] + r[c]`
    Add(u8, u8, u8),
    /// `r[a] = r[b] * r[c]`
    Multiply(u8, u8, u8),
    /// `r[a] = r[b] ^ (r[b] >> number)`
    Mix(u8, u8, u8),
    /// `r[a] = cells[r[b]]`
    Load(u8, u8),
    /// `cells[r[a]] = r[b]`
    Store(u8, u8),
    /// Jumps where `r[a] < r[b]`.
    JumpLess(u8, u8, u8),
    /// Jumps where `r[a] != 0`.
    JumpSet(u8, u8),
    /// Jumps.
    Jump(u8),
    /// Ends.
    Halt,
}

/// The machine: its program, registers and memory.
#[derive(Debug)]
pub(super) struct RegisterMachine {
    program: Vec<MachineCode>,
    cells: Vec<u32>,
}

impl RegisterMachine {
    pub(super) fn new() -> Self {
        Self { program: program(), cells: vec![0; CELLS] }
    }

    pub(super) fn run(&mut self) -> u64 {
        self.cells.fill(0);
        let (registers, steps) = self.interpret();
        let mut hash = FnvHash::new();
        for register in registers {
            hash.number(u64::from(register));
        }
        hash.number(steps);
        hash.finish()
    }

    fn interpret(&mut self) -> ([u32; 8], u64) {
        let mut r = [0_u32; 8];
        let (mut at, mut steps) = (0_usize, 0_u64);
        let at_register = |register: u8| usize::from(register & 7);
        loop {
            let code = self.program[at];
            at += 1;
            steps += 1;
            match code {
                MachineCode::Set(a, number) => r[at_register(a)] = number,
                MachineCode::Add(a, b, c) => {
                    r[at_register(a)] = r[at_register(b)].wrapping_add(r[at_register(c)]);
                }
                MachineCode::Multiply(a, b, c) => {
                    r[at_register(a)] = r[at_register(b)].wrapping_mul(r[at_register(c)]);
                }
                MachineCode::Mix(a, b, by) => {
                    let value = r[at_register(b)];
                    r[at_register(a)] = value ^ (value >> by);
                }
                MachineCode::Load(a, b) => {
                    r[at_register(a)] = self.cells[r[at_register(b)] as usize % CELLS];
                }
                MachineCode::Store(a, b) => {
                    self.cells[r[at_register(a)] as usize % CELLS] = r[at_register(b)];
                }
                MachineCode::JumpLess(a, b, to) if r[at_register(a)] < r[at_register(b)] => {
                    at = usize::from(to);
                }
                MachineCode::JumpSet(a, to) if r[at_register(a)] != 0 => at = usize::from(to),
                MachineCode::Jump(to) => at = usize::from(to),
                MachineCode::JumpLess(..) | MachineCode::JumpSet(..) => {}
                MachineCode::Halt => return (r, steps),
            }
        }
    }
}

/// r0: number, r1: multiple, r2: end, r3: one, r4: composite?, r5: sum of primes, r6: count of primes, r7: round.
fn program() -> Vec<MachineCode> {
    use MachineCode::{Add, Halt, Jump, JumpLess, JumpSet, Load, Mix, Multiply, Set, Store};
    let mut program = vec![
        Set(2, 60_000),
        Set(3, 1),
        Set(7, 0),
        Set(0, 2),
        // 4: take a number, and skip it if it is composite.
        Load(4, 0),
        JumpSet(4, 14),
        Add(5, 5, 0),
        Add(6, 6, 3),
        Mix(5, 5, 7),
        // 9: strike its multiples.
        Add(1, 0, 0),
        JumpLess(2, 1, 14),
        Store(1, 3),
        Add(1, 1, 0),
        Jump(10),
        // 14: the next number.
        Add(0, 0, 3),
        JumpLess(0, 2, 4),
    ];
    // 16: mix what the memory holds, several times over.
    program.extend([
        Set(0, 0),
        Load(4, 0),
        Add(5, 5, 4),
        Multiply(5, 5, 2),
        Mix(5, 5, 13),
        Add(0, 0, 3),
        JumpLess(0, 2, 17),
        Add(7, 7, 3),
        Set(1, 8),
        JumpLess(7, 1, 16),
        Halt,
    ]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sieve_finds_the_primes_below_its_end() {
        let (registers, _) = RegisterMachine::new().interpret();
        let is_prime = |n: &u32| (2..=*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        assert_eq!(registers[6] as usize, (2..60_000).filter(is_prime).count());
    }
}
