//! Values at indexes that stay theirs until they are removed, and are then given out again.

/// A slab.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value; its index.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.places[index as usize] = Some(value);
            return index;
        }
        let index = u32::try_from(self.places.len()).expect("fewer than 2^32 values");
        self.places.push(Some(value));
        index
    }

    /// Gives a value up.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.vacant.push(index);
        Some(value)
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    /// Values kept.
    pub fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }
}
