// Outside of a component: the host that a test made.
import { ask } from '../../testing/current.js';

export const get = ask('db', 'get');
export const getVersioned = ask('db', 'getVersioned');
export const getMany = ask('db', 'getMany');
export const put = ask('db', 'put');
export const putFor = ask('db', 'putFor');
export const remove = ask('db', 'remove');
export const merge = ask('db', 'merge');
export const write = ask('db', 'write');
export const scan = ask('db', 'scan');
export const scanPrefix = ask('db', 'scanPrefix');
export const openSnapshot = ask('db', 'openSnapshot');
export const begin = ask('db', 'begin');
