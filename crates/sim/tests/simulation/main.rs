//! Simulations against what theory says about them.

mod aimd;
mod applications;
mod determinism;
mod fairness;
mod links;
mod network;
mod processors;
mod queues;
mod scenarios;
mod windows;
