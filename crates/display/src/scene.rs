//! Structured display files: numbered symbols of items, which may be calls to other symbols.
//!
//! No symbol reaches itself by calls, none is nested deeper than [`DEPTH_MAX`], and memory has a limit.

use std::collections::BTreeMap;

use crate::geometry::{DEPTH_MAX, GridExtent};
use crate::item::{DisplayItem, ITEM_LEN, ItemError, ItemKind, TailRange};

/// What a symbol takes beside its items, in bytes: a bound.
const SYMBOL_BYTES: usize = 256;
/// What an entry in the list of a symbol's callers takes, in bytes: a bound.
const CALLER_BYTES: usize = 32;
/// Wasted bytes of a tail before it is compacted.
const WASTE_MAX: usize = 4_096;
/// Calls looked at to find where a changed symbol is shown, at most.
const SEARCH_MAX: usize = 1 << 22;

/// What a scene may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SceneLimits {
    /// Bytes of memory.
    pub memory: usize,
    /// Symbols are numbered from 0 to below this.
    pub symbols: u32,
}

impl Default for SceneLimits {
    fn default() -> Self {
        Self { memory: 256 << 20, symbols: 1 << 16 }
    }
}

/// Why a scene was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SceneError {
    /// Nobody has defined it.
    #[error("symbol {0} is not defined; define it first")]
    UnknownSymbol(u32),
    /// Its number is beyond the limit.
    #[error("symbol {0} is beyond the largest number; use smaller numbers")]
    SymbolNumber(u32),
    /// A symbol would contain itself.
    #[error("a call would make symbol {0} contain itself")]
    Cycle(u32),
    /// Calls would be nested too deep.
    #[error("a call would nest symbols more than {DEPTH_MAX} deep")]
    Depth,
    /// Symbols that others call stay.
    #[error("symbol {0} is called by others; remove their calls first")]
    Called(u32),
    /// It has fewer items.
    #[error("the symbol has no item {0}")]
    ItemNumber(u32),
    /// It is no item.
    #[error("{0}")]
    Item(#[from] ItemError),
    /// It would take more memory than it may.
    #[error("the scene would take more memory than the display's limit")]
    Memory,
}

/// A symbol: its items, and who calls it.
#[derive(Clone, Debug, Default)]
pub struct DisplaySymbol {
    items: Vec<DisplayItem>,
    /// Text, corners and rows that items refer to.
    tail: Vec<u8>,
    /// Bytes of the tail that no item refers to.
    wasted: usize,
    /// The symbols that call it, and how often.
    callers: BTreeMap<u32, u32>,
    /// Calls within calls below it, or more.
    height: u32,
    /// What it covers, or more.
    extent: Option<GridExtent>,
    /// Whether a symbol below has grown since `extent` was made.
    is_stale: bool,
}

impl DisplaySymbol {
    /// Its items in the order that they are drawn in.
    pub fn items(&self) -> &[DisplayItem] {
        &self.items
    }

    /// What its items refer to.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// What it covers, or more.
    pub fn extent(&self) -> GridExtent {
        self.extent.unwrap_or(GridExtent::EMPTY)
    }

    fn grow(&mut self, by: &GridExtent) -> bool {
        let old = self.extent();
        let new = old.union(by);
        self.extent = Some(new);
        new != old
    }

    fn bytes(&self) -> usize {
        self.items.capacity() * ITEM_LEN + self.tail.capacity()
    }

    /// Makes the tail as short as it can be.
    fn compact(&mut self) {
        let mut tail = Vec::with_capacity(self.tail.len() - self.wasted);
        for item in self.items.iter_mut().filter(|item| item.has_tail()) {
            let bytes = item.tail().of(&self.tail).unwrap_or_default();
            item.values[2] = i32::try_from(tail.len()).expect("a tail only becomes shorter");
            tail.extend_from_slice(bytes);
        }
        (self.tail, self.wasted) = (tail, 0);
    }
}

/// What changed of a symbol, in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SceneChange {
    /// The symbol.
    pub symbol: u32,
    /// Where.
    pub extent: GridExtent,
    /// The first of the items that came to its end, where that is all.
    pub appended_from: Option<usize>,
}

/// Symbols.
#[derive(Clone, Debug)]
pub struct DisplayScene {
    symbols: Vec<Option<Box<DisplaySymbol>>>,
    limits: SceneLimits,
    memory: usize,
}

impl DisplayScene {
    /// Without symbols.
    pub const fn new(limits: SceneLimits) -> Self {
        Self { symbols: Vec::new(), limits, memory: 0 }
    }

    /// Bytes that it takes.
    pub const fn memory(&self) -> usize {
        self.memory
    }

    /// What it may take.
    pub const fn limits(&self) -> SceneLimits {
        self.limits
    }

    /// A symbol.
    pub fn symbol(&self, id: u32) -> Option<&DisplaySymbol> {
        self.symbols.get(id as usize)?.as_deref()
    }

    /// The numbers of its symbols.
    pub fn symbol_ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..).zip(&self.symbols).filter_map(|(id, symbol)| symbol.is_some().then_some(id))
    }

    /// The numbers of its symbols, each after those that it calls: the order in which another display can be told about them.
    pub fn symbols_from_below(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.symbol_ids().collect();
        ids.sort_by_key(|id| self.symbol(*id).map_or(0, |symbol| symbol.height));
        ids
    }

    /// Makes a symbol without items, whatever it was before.
    ///
    /// # Errors
    /// The number or the memory is beyond its limit.
    pub fn define(&mut self, id: u32) -> Result<SceneChange, SceneError> {
        if id >= self.limits.symbols {
            return Err(SceneError::SymbolNumber(id));
        }
        if self.symbol(id).is_some() {
            self.refresh(id);
            let symbol = self.take(id)?;
            self.memory -= symbol.bytes();
            let extent = symbol.extent();
            self.forget_calls(id, &symbol.items);
            let empty = DisplaySymbol { callers: symbol.callers, ..DisplaySymbol::default() };
            self.put(id, Box::new(empty));
            return Ok(SceneChange { symbol: id, extent, appended_from: None });
        }
        self.charge(SYMBOL_BYTES)?;
        let index = id as usize;
        if index >= self.symbols.len() {
            let more = (index + 1 - self.symbols.len()) * size_of::<Option<Box<DisplaySymbol>>>();
            if let Err(error) = self.charge(more) {
                self.memory -= SYMBOL_BYTES;
                return Err(error);
            }
            self.symbols.resize_with(index + 1, || None);
        }
        self.put(id, Box::default());
        Ok(SceneChange { symbol: id, extent: GridExtent::EMPTY, appended_from: Some(0) })
    }

    /// Removes a symbol that no other calls.
    ///
    /// # Errors
    /// There is none, or it is called.
    pub fn remove(&mut self, id: u32) -> Result<SceneChange, SceneError> {
        let symbol = self.symbol(id).ok_or(SceneError::UnknownSymbol(id))?;
        if !symbol.callers.is_empty() {
            return Err(SceneError::Called(id));
        }
        self.refresh(id);
        let symbol = self.take(id)?;
        self.forget_calls(id, &symbol.items);
        self.memory -= symbol.bytes() + SYMBOL_BYTES;
        Ok(SceneChange { symbol: id, extent: symbol.extent(), appended_from: None })
    }

    /// Adds items to a symbol's end: all, or none if one of them is bad.
    ///
    /// # Errors
    /// An item is none, calls what it must not, or memory is out.
    pub fn add<I>(&mut self, id: u32, items: I, tail: &[u8]) -> Result<SceneChange, SceneError>
    where
        I: ExactSizeIterator<Item = Result<DisplayItem, ItemError>>,
    {
        let mut symbol = self.take(id)?;
        let (old_items, old_tail) = (symbol.items.len(), symbol.tail.len());
        let mut extent = GridExtent::EMPTY;
        let added = self.reserve(&mut symbol, items.len(), tail.len()).and_then(|()| {
            symbol.tail.extend_from_slice(tail);
            for item in items {
                let mut item = item?;
                extent = extent.union(&self.extent_of(id, &item, tail, &mut symbol)?);
                if item.has_tail() {
                    item.values[2] += i32::try_from(old_tail).map_err(|_| SceneError::Memory)?;
                }
                symbol.items.push(item);
            }
            Ok(())
        });
        if added.is_err() {
            self.forget_calls(id, &symbol.items[old_items..]);
            symbol.items.truncate(old_items);
            symbol.tail.truncate(old_tail);
        }
        let has_grown = added.is_ok() && symbol.grow(&extent);
        self.put(id, symbol);
        if has_grown {
            self.mark_callers(id);
        }
        added.map(|()| SceneChange { symbol: id, extent, appended_from: Some(old_items) })
    }

    /// Puts another item in the place of one.
    ///
    /// # Errors
    /// As [`DisplayScene::add`], and when there is no such item.
    pub fn edit(
        &mut self,
        id: u32,
        index: u32,
        item: DisplayItem,
        tail: &[u8],
    ) -> Result<SceneChange, SceneError> {
        let mut symbol = self.take(id)?;
        let edited = self.replace(id, &mut symbol, index, item, tail);
        let has_grown = edited.as_ref().is_ok_and(|extent| symbol.grow(extent));
        self.put(id, symbol);
        if has_grown {
            self.mark_callers(id);
        }
        edited.map(|extent| SceneChange { symbol: id, extent, appended_from: None })
    }

    fn replace(
        &mut self,
        id: u32,
        symbol: &mut DisplaySymbol,
        index: u32,
        mut item: DisplayItem,
        tail: &[u8],
    ) -> Result<GridExtent, SceneError> {
        let at = index as usize;
        let old = *symbol.items.get(at).ok_or(SceneError::ItemNumber(index))?;
        self.reserve(symbol, 0, tail.len())?;
        let new_extent = self.extent_of(id, &item, tail, symbol)?;
        let old_extent = match old.called() {
            Some(called) => {
                self.refresh(called);
                let below = self.symbol(called).map_or(GridExtent::EMPTY, DisplaySymbol::extent);
                self.forget_calls(id, &[old]);
                old.placement().extent(&below)
            }
            None => old.extent(&symbol.tail),
        };
        if item.has_tail() {
            let base = i32::try_from(symbol.tail.len()).map_err(|_| SceneError::Memory)?;
            item.values[2] += base;
            symbol.tail.extend_from_slice(tail);
        }
        symbol.wasted +=
            old.tail().len.max(0).unsigned_abs() as usize * usize::from(old.has_tail());
        symbol.items[at] = item;
        if symbol.wasted > WASTE_MAX && symbol.wasted > symbol.tail.len() / 2 {
            self.memory -= symbol.bytes();
            symbol.compact();
            self.memory += symbol.bytes();
        }
        Ok(new_extent.union(&old_extent))
    }

    /// What an item of symbol `id`, which is `symbol` and taken out, covers; calls are noted.
    fn extent_of(
        &mut self,
        id: u32,
        item: &DisplayItem,
        tail: &[u8],
        symbol: &mut DisplaySymbol,
    ) -> Result<GridExtent, SceneError> {
        let Some(called) = item.called() else { return Ok(item.extent(tail)) };
        if called == id {
            return Err(SceneError::Cycle(id));
        }
        let below = self.symbol(called).ok_or(SceneError::UnknownSymbol(called))?;
        if below.height >= symbol.height {
            self.raise(id, called, symbol)?;
        }
        let is_first = self.symbol(called).is_some_and(|below| !below.callers.contains_key(&id));
        if is_first {
            self.charge(CALLER_BYTES)?;
        }
        self.refresh(called);
        let below = self.symbols[called as usize].as_mut().expect("found above");
        *below.callers.entry(id).or_insert(0) += 1;
        Ok(item.placement().extent(&below.extent()))
    }

    /// Makes `id`, which is `symbol` and taken out, and all that reach it by calls, higher than `called`.
    fn raise(
        &mut self,
        id: u32,
        called: u32,
        symbol: &mut DisplaySymbol,
    ) -> Result<(), SceneError> {
        let height = |scene: &Self| scene.symbol(called).map_or(0, |below| below.height) + 1;
        let raised = self.raised(id, called, (height(self), symbol)).or_else(|error| {
            if error != SceneError::Depth {
                return Err(error);
            }
            // Heights are bounds that calls removed since may have left too great.
            self.recompute_heights();
            symbol.height = self.height_of(symbol);
            self.raised(id, called, (height(self), symbol))
        })?;
        for (raised, height) in raised {
            if raised == id {
                symbol.height = height;
            } else if let Some(symbol) = self.symbols[raised as usize].as_mut() {
                symbol.height = height;
            }
        }
        Ok(())
    }

    /// The heights that would change if `id` were to have this one.
    fn raised(
        &self,
        id: u32,
        called: u32,
        (height, symbol): (u32, &DisplaySymbol),
    ) -> Result<BTreeMap<u32, u32>, SceneError> {
        let mut raised = BTreeMap::from([(id, height)]);
        let mut rest = vec![(id, height)];
        while let Some((at, height)) = rest.pop() {
            let callers = if at == id { Some(symbol) } else { self.symbol(at) };
            for caller in callers.iter().flat_map(|symbol| symbol.callers.keys()).copied() {
                if caller == called {
                    return Err(SceneError::Cycle(called));
                }
                let known = raised.get(&caller).copied();
                let known = known.or_else(|| Some(self.symbol(caller)?.height)).unwrap_or(0);
                if known <= height {
                    raised.insert(caller, height + 1);
                    rest.push((caller, height + 1));
                }
            }
            if height > DEPTH_MAX {
                return Err(SceneError::Depth);
            }
        }
        Ok(raised)
    }

    fn height_of(&self, symbol: &DisplaySymbol) -> u32 {
        let called = symbol.items.iter().filter_map(DisplayItem::called);
        called.filter_map(|id| Some(self.symbol(id)?.height + 1)).max().unwrap_or(0)
    }

    /// The height of every symbol, exactly.
    fn recompute_heights(&mut self) {
        let ids = self.symbols_from_below();
        for id in ids {
            let Ok(mut symbol) = self.take(id) else { continue };
            symbol.height = self.height_of(&symbol);
            self.put(id, symbol);
        }
    }

    /// Makes what a symbol covers right again.
    pub(crate) fn refresh(&mut self, id: u32) {
        let is_stale = |scene: &Self, id| scene.symbol(id).is_some_and(|symbol| symbol.is_stale);
        if !is_stale(self, id) {
            return;
        }
        let Ok(mut symbol) = self.take(id) else { return };
        symbol.is_stale = false;
        let items = std::mem::take(&mut symbol.items);
        for item in &items {
            if let Some(called) = item.called() {
                self.refresh(called);
                let below = self.symbol(called).map_or(GridExtent::EMPTY, DisplaySymbol::extent);
                symbol.grow(&item.placement().extent(&below));
            }
        }
        symbol.items = items;
        self.put(id, symbol);
    }

    /// Notes that what all that reach a symbol by calls cover may have grown.
    fn mark_callers(&mut self, id: u32) {
        let callers: Vec<u32> = self
            .symbol(id)
            .map(|symbol| symbol.callers.keys().copied().collect())
            .unwrap_or_default();
        for caller in callers {
            if let Some(symbol) = self.symbols[caller as usize].as_mut()
                && !symbol.is_stale
            {
                symbol.is_stale = true;
                self.mark_callers(caller);
            }
        }
    }

    /// Where something of a symbol is shown within another, or none where that takes too long to tell.
    pub(crate) fn within(&self, root: u32, symbol: u32, extent: &GridExtent) -> Option<GridExtent> {
        let mut found = GridExtent::EMPTY;
        let mut rest = vec![(symbol, *extent)];
        let mut looked = 0;
        while let Some((id, extent)) = rest.pop() {
            if id == root {
                found = found.union(&extent);
                continue;
            }
            let callers = self.symbol(id).map(|symbol| &symbol.callers);
            for caller in callers.into_iter().flat_map(BTreeMap::keys) {
                let items = self.symbol(*caller).map_or(&[][..], DisplaySymbol::items);
                looked += items.len();
                if looked > SEARCH_MAX {
                    return None;
                }
                let calls = items.iter().filter(|item| item.called() == Some(id));
                let placed = calls
                    .map(|call| call.placement().extent(&extent))
                    .fold(GridExtent::EMPTY, |all, placed| all.union(&placed));
                rest.push((*caller, placed));
            }
        }
        Some(found)
    }

    fn forget_calls(&mut self, id: u32, items: &[DisplayItem]) {
        for called in items.iter().filter_map(DisplayItem::called) {
            let Some(Some(below)) = self.symbols.get_mut(called as usize) else { continue };
            if let Some(count) = below.callers.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    below.callers.remove(&id);
                    self.memory -= CALLER_BYTES;
                }
            }
        }
    }

    /// Room for more items and bytes of a tail; growth as a vector grows by itself.
    fn reserve(
        &mut self,
        symbol: &mut DisplaySymbol,
        items: usize,
        tail: usize,
    ) -> Result<(), SceneError> {
        let grown = |len: usize, capacity: usize, more: usize| {
            if len + more > capacity { (len + more).max(capacity * 2) } else { capacity }
        };
        let new_items = grown(symbol.items.len(), symbol.items.capacity(), items);
        let new_tail = grown(symbol.tail.len(), symbol.tail.capacity(), tail);
        let (old, new) = (symbol.bytes(), new_items * ITEM_LEN + new_tail);
        self.charge(new.saturating_sub(old))?;
        symbol.items.reserve_exact(new_items - symbol.items.len());
        symbol.tail.reserve_exact(new_tail - symbol.tail.len());
        self.memory = self.memory + symbol.bytes() - old - new.saturating_sub(old);
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), SceneError> {
        if self.memory + bytes > self.limits.memory {
            return Err(SceneError::Memory);
        }
        self.memory += bytes;
        Ok(())
    }

    fn take(&mut self, id: u32) -> Result<Box<DisplaySymbol>, SceneError> {
        let symbol = self.symbols.get_mut(id as usize).and_then(Option::take);
        symbol.ok_or(SceneError::UnknownSymbol(id))
    }

    fn put(&mut self, id: u32, symbol: Box<DisplaySymbol>) {
        self.symbols[id as usize] = Some(symbol);
    }
}

impl DisplayItem {
    /// The same item for a tail of its own: its text, corners or rows at the beginning.
    pub(crate) fn with_tail<'a>(&self, tail: &'a [u8]) -> (Self, &'a [u8]) {
        if !self.has_tail() {
            return (*self, &[]);
        }
        let bytes = self.tail().of(tail).unwrap_or_default();
        let range = TailRange { offset: 0, len: self.values[3] };
        let mut item = *self;
        (item.values[2], item.values[3]) = (range.offset, range.len);
        (item, bytes)
    }

    /// Whether it draws anything.
    pub const fn is_empty(&self) -> bool {
        matches!(self.kind, ItemKind::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::FillStipple;

    fn scene(symbols: u32) -> DisplayScene {
        let mut scene = DisplayScene::new(SceneLimits::default());
        for id in 0..symbols {
            scene.define(id).unwrap();
        }
        scene
    }

    fn call(scene: &mut DisplayScene, from: u32, to: i32) -> Result<SceneChange, SceneError> {
        scene.add(from, [Ok(DisplayItem::call(to, 0, (10, 0)))].into_iter(), &[])
    }

    fn square(side: i32) -> DisplayItem {
        DisplayItem::rectangle(1, FillStipple::Solid, (0, 0), (side, side))
    }

    #[test]
    fn a_symbol_never_contains_itself() {
        let mut scene = scene(4);
        assert_eq!(call(&mut scene, 0, 0), Err(SceneError::Cycle(0)));
        call(&mut scene, 0, 1).unwrap();
        call(&mut scene, 1, 2).unwrap();
        call(&mut scene, 2, 3).unwrap();
        assert_eq!(call(&mut scene, 3, 0), Err(SceneError::Cycle(0)));
        assert_eq!(call(&mut scene, 2, 1), Err(SceneError::Cycle(1)));
        assert!(scene.symbol(3).unwrap().items().is_empty(), "a refused call leaves nothing");
        call(&mut scene, 0, 3).unwrap();
    }

    #[test]
    fn calls_are_nested_to_a_limit() {
        let mut scene = scene(40);
        let depth = i32::try_from(DEPTH_MAX).unwrap();
        for id in 0..DEPTH_MAX {
            // From the top downwards, so that every call raises all above it.
            call(&mut scene, id, i32::try_from(id).unwrap() + 1).unwrap();
        }
        assert_eq!(call(&mut scene, DEPTH_MAX, depth + 1), Err(SceneError::Depth));
        // A shorter chain is possible once one of its links is gone.
        scene.edit(5, 0, DisplayItem::default(), &[]).unwrap();
        call(&mut scene, DEPTH_MAX, depth + 1).unwrap();
    }

    #[test]
    fn a_bad_item_leaves_a_symbol_as_it_was() {
        let mut scene = scene(2);
        let before = scene.memory();
        let items = [Ok(square(9)), Ok(DisplayItem::call(1, 0, (0, 0))), Err(ItemError::Kind)];
        let refused = scene.add(0, items.into_iter(), b"abc");
        assert_eq!(refused, Err(SceneError::Item(ItemError::Kind)));
        assert!(scene.symbol(0).unwrap().items().is_empty());
        scene.remove(1).expect("nobody calls it");
        scene.define(1).unwrap();
        let room = 3 * ITEM_LEN + 3;
        assert!(scene.memory() <= before + room, "{} {before}", scene.memory());
    }

    #[test]
    fn memory_has_a_limit() {
        let mut scene = DisplayScene::new(SceneLimits { memory: 10_000, symbols: 100 });
        scene.define(0).unwrap();
        let mut added = 0;
        let error = loop {
            match scene.add(0, [Ok(square(1))].into_iter(), &[]) {
                Ok(_) => added += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, SceneError::Memory);
        assert!((200..500).contains(&added), "{added} items in 10,000 bytes");
        assert_eq!(scene.define(100), Err(SceneError::SymbolNumber(100)));
    }

    #[test]
    fn texts_may_be_edited_for_ever_in_the_same_memory() {
        let mut scene = DisplayScene::new(SceneLimits { memory: 30_000, symbols: 1 });
        scene.define(0).unwrap();
        let text = |len: i32| DisplayItem::text(1, (0, 0), TailRange { offset: 0, len });
        scene.add(0, [Ok(text(5))].into_iter(), b"hello").unwrap();
        for round in 0..10_000_u32 {
            scene.edit(0, 0, text(80), &[b'a' + u8::try_from(round % 26).unwrap(); 80]).unwrap();
        }
        let symbol = scene.symbol(0).unwrap();
        assert_eq!(symbol.items()[0].tail().of(symbol.tail()), Some(&[b'p'; 80][..]));
    }

    #[test]
    fn callers_cover_what_their_symbols_grow_to() {
        let mut scene = scene(3);
        call(&mut scene, 1, 0).unwrap();
        call(&mut scene, 2, 1).unwrap();
        scene.add(0, [Ok(square(5))].into_iter(), &[]).unwrap();
        scene.refresh(2);
        assert_eq!(scene.symbol(2).unwrap().extent(), GridExtent { x0: 20, y0: 0, x1: 25, y1: 5 });
        let inner = GridExtent { x0: 0, y0: 0, x1: 1, y1: 1 };
        let placed = GridExtent { x0: 20, y0: 0, x1: 21, y1: 1 };
        assert_eq!(scene.within(2, 0, &inner), Some(placed));
        assert_eq!(scene.symbols_from_below(), [0, 1, 2]);
        assert_eq!(scene.remove(0), Err(SceneError::Called(0)));
    }
}
