// The part of Preact, htm and signals that the page uses. The packages' own types are larger than
// the page; these are what `tsc` reads in their place.

export type Child = VNode | string | number | boolean | null | undefined | Child[] | ReadonlySignal<any>;
export interface VNode { type: unknown; props: unknown; key: unknown }
export type Component<P> = (props: P) => VNode | null;
export interface Ref<T> { current: T | null }
export interface Box<T> { current: T }

export function h(type: unknown, props: unknown, ...children: unknown[]): VNode;
export function html(strings: TemplateStringsArray, ...values: unknown[]): VNode;
export function render(node: VNode | null, parent: Element): void;
export function createRef<T>(): Ref<T>;
export const Fragment: unknown;

export function useState<S>(initial: S | (() => S)): [S, (next: S | ((prev: S) => S)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: readonly unknown[]): void;
export function useRef<T>(initial: T): Box<T>;
export function useRef<T>(initial: null): Ref<T>;
export function useMemo<T>(make: () => T, inputs: readonly unknown[]): T;
export function useCallback<T extends Function>(callback: T, inputs: readonly unknown[]): T;

export interface ReadonlySignal<T> { readonly value: T; peek(): T; subscribe(fn: (value: T) => void): () => void }
export interface Signal<T> extends ReadonlySignal<T> { value: T }
export function signal<T>(value: T): Signal<T>;
export function computed<T>(make: () => T): ReadonlySignal<T>;
export function effect(run: () => void | (() => void)): () => void;
export function batch<T>(run: () => T): T;
export function untracked<T>(run: () => T): T;
export function useSignal<T>(value: T): Signal<T>;
export function useComputed<T>(make: () => T): ReadonlySignal<T>;
export function useSignalEffect(run: () => void | (() => void)): void;
